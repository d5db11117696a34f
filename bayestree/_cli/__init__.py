"""Helpers of the command line; torch is imported only when it is needed."""
