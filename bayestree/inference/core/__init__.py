"""Compiled loops over rows: probabilities of paths, slopes of VI, and a sweep of a chain.

numba compiles a function when it is first called, and keeps the code in ``NUMBA_CACHE_DIR``, beside
the module, or in the user's cache, whichever can be written; without any, every process compiles.
It compiles again when the file of the function changes, but not when a file changes from which that
one imports.
"""
