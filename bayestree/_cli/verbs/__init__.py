"""The verbs of the command line, one in each module; each calls public functions."""
