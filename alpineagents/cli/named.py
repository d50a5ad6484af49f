"""An Agent that a person names as `module:name`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from alpineagents.agent import Agent
from alpineagents.errors import ConfigError


def named_agent(named: str) -> Agent[Any]:
    """
    Import an Agent; modules in the current folder are found first.

    Raises:
        ConfigError: there is no such module or name, it is no Agent, or the module fails.
    """
    module_name, _, name = named.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{named!r} names no Agent: --agent module:name, such as --agent office:agent")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = "" if error.name == module_name else f", which module {module_name!r} imports"
        raise ConfigError(
            f"there is no module {error.name!r}{missing}. Run this in the folder that holds it, or install it"
        ) from error
    except Exception as error:
        raise ConfigError(f"module {module_name!r} fails with {type(error).__name__}: {error}") from error
    agent = getattr(module, name, None)
    if not isinstance(agent, Agent):
        agents = sorted(each for each, value in vars(module).items() if isinstance(value, Agent))
        there = f"It has: {', '.join(agents)}" if agents else "Write there: agent = Agent(model, tools=[…])"
        raise ConfigError(f"{name!r} in module {module_name!r} is no Agent. {there}")
    return agent
