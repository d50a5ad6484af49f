"""The settings of an Agent: they do not change, and what cannot work is refused when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import Agent, ConfigError, MemoryStore, tool
from alpineagents.testing import FakeModel


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


def test_an_agent_does_not_change() -> None:
    """A run that goes on would see the change half-way."""
    agent = Agent(FakeModel([]), name="guide")

    with pytest.raises(AttributeError, match=r"agent\.copy\(name=…\)"):
        agent.name = "other"
    with pytest.raises(TypeError):
        agent.tools["look"] = look


def test_a_copy_has_other_settings_and_keeps_the_rest() -> None:
    """The Agent itself stays as it was."""
    store, model = MemoryStore(), FakeModel([])
    agent = Agent(model, name="guide", system="Be brief.", tools=[look], store=store, on_unknown="ask", lease=5.0)

    copy = agent.copy(system="Be kind.")

    assert (copy.system, agent.system) == ("Be kind.", "Be brief.")
    assert (copy.model, copy.store, copy.name, copy.on_unknown, copy.lease) == (model, store, "guide", "ask", 5.0)
    assert list(copy.tools) == ["look"]


def test_a_copy_with_a_setting_that_does_not_exist_is_refused() -> None:
    """A slip of the pen is no silent no-op."""
    with pytest.raises(TypeError, match="sytem"):
        Agent(FakeModel([])).copy(sytem="Be brief.")


def test_an_agent_shows_what_it_is() -> None:
    """Name, model and tools, and not its system prompt."""
    agent = Agent(FakeModel([]), name="guide", system="secret", tools=[look])

    assert repr(agent) == "<Agent 'guide' model='fake' tools=['look']>"


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"loop": lambda agent, state: None}, "@loop"),
        ({"store": "agents.db"}, "SQLStore"),
        ({"on_unknown": "guess"}, "'report', 'retry', 'ask'"),
        ({"lease": 0}, "lease=0"),
        ({"lease": float("inf")}, "lease=inf"),
        ({"lease": "60"}, "lease='60'"),
        ({"tools": look}, "tools"),
        ({"tools": [look, look]}, "two tools"),
    ],
)
def test_an_agent_that_cannot_work_is_refused(settings: dict[str, Any], says: str) -> None:
    """When it is made, with what was expected."""
    with pytest.raises(ConfigError, match=says):
        Agent(FakeModel([]), **settings)
