"""Helpers without an interface of their own; every other room may import them."""
