"""A State that another Agent goes on with."""

from __future__ import annotations

import warnings

import pytest

from alpineagents import Agent, MemoryStore, Message, ResumeWarning, State, tool
from alpineagents.testing import FakeModel


@tool
def weigh(load: int) -> int:
    """Weigh a load."""
    return load


@tool(name="weigh")
def weigh_twice(load: int, times: int = 2) -> int:
    """Weigh a load."""
    return load * times


@tool
def lift(load: int) -> int:
    """Lift a load."""
    return load


async def saved_by(agent: Agent) -> MemoryStore:
    store = MemoryStore()
    await agent.copy(store=store).run("Hello", id="load")
    return store


async def test_a_different_agent_is_named_with_both_sides() -> None:
    """The warning says what the Agent that saved the State was, and what the one that goes on is."""
    store = await saved_by(Agent(FakeModel(["Hi"], name="small"), system="Be brief.", tools=[weigh, lift]))
    other = Agent(FakeModel(["Hi"], name="large"), system="Be kind.", tools=[weigh_twice], name="porter", store=store)

    with pytest.warns(ResumeWarning) as caught:
        await other.resume("load", "Again")

    warning = caught[0].message
    assert isinstance(warning, ResumeWarning)
    assert warning.changes["model"] == ("small", "large")
    assert warning.changes["system"] == ("Be brief.", "Be kind.")
    assert warning.changes["name"] == (None, "porter")
    before, now = warning.changes["tools"]
    assert isinstance(before, dict)
    assert isinstance(now, dict)
    assert (sorted(before), sorted(now)) == (["lift", "weigh"], ["weigh"])
    assert before["weigh"] != now["weigh"]
    assert "removed lift; changed weigh" in str(warning)


async def test_it_names_the_line_that_goes_on() -> None:
    """A warning about a line of the library would help nobody."""
    store = await saved_by(Agent(FakeModel(["Hi"], name="small")))

    with pytest.warns(ResumeWarning) as caught:
        await Agent(FakeModel(["Hi"], name="large"), store=store).resume("load", "Again")

    assert caught[0].filename == __file__


async def test_as_an_error_it_stops_before_anything_runs() -> None:
    """No model is asked and no Event is written."""
    store = await saved_by(Agent(FakeModel(["Hi"])))
    model = FakeModel(["never"], name="other")

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        with pytest.raises(ResumeWarning):
            await Agent(model, store=store).resume("load", "Again")

    assert model.requests == []
    assert (await store.info("load")).revision == 5


async def test_the_same_agent_goes_on_without_a_word() -> None:
    """Another object with the same settings is the same Agent."""
    store = await saved_by(Agent(FakeModel(["Hi"]), tools=[weigh]))

    assert await Agent(FakeModel(["Hi again"]), tools=[weigh], store=store).resume("load", "Again") == "Hi again"


async def test_a_state_may_pass_from_one_agent_to_another_in_one_process() -> None:
    """Only a loaded State is compared: a hand-over in the same program is no surprise to it."""
    state = State(messages=[Message.user("Hello")])
    await Agent(FakeModel(["Hi"], name="first")).run(state)
    state.add_message(Message.user("Again"))

    assert await Agent(FakeModel(["Hi again"], name="second")).run(state) == "Hi again"
