"""`python -m tracekit`: the command line, and nothing else."""

from tracekit.cli import main

main()
