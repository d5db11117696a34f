"""`python -m bayestree.cli`."""

from bayestree.cli._app import main

main()
