"""The demo: an agent that dies and goes on, with all that it needs."""

from alpineagents.cli.demo.story import demo

__all__ = ["demo"]
