"""`python -m bayestree.cli`."""

from bayestree.cli import main

main()
