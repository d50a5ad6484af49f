"""The command line `alpineagents`."""

from alpineagents.cli.app import app, main

__all__ = ["app", "main"]
