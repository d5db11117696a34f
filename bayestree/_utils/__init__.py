"""Helpers without an interface of their own; every other layer may import them."""
