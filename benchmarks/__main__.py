"""The tables of the papers, measured again: ours and the rivals beside the published figures."""

from benchmarks.papers.command import main

main()
