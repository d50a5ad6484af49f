"""The terminal as who reads a run and as who is asked."""

from alpineagents.terminal.terminal import Terminal

__all__ = ["Terminal"]
