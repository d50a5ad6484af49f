"""`python -m alpineagents` is the command `alpineagents`."""

from alpineagents.cli import main

main()
