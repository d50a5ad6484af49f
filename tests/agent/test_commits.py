"""What is saved when: each step is in the store before the next one has an effect."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from alpineagents import Agent, Message, Request, State, StateExistsError, Store, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, kinds, wait_for

ASKED = ["message_added", "run_started", "model_requested"]


@pytest.fixture
def reader(another: Callable[[], Store]) -> Store:
    """Another store object on the same place, to see what is really saved."""
    return another()


async def saved(reader: Store, id: str = "s") -> list[str]:
    return kinds(await reader.load(id))


async def test_the_message_and_the_request_are_saved_before_the_model_is_asked(store: Store, reader: Store) -> None:
    """A run that crashes at its first step has left a trace."""
    seen: list[list[str]] = []

    async def look(request: Request) -> str:
        seen.append(await saved(reader))
        return "Hi"

    await Agent(FakeModel(look), store=store).run("Hello", id="s")

    assert seen == [ASKED]


async def test_the_reply_and_the_starts_are_saved_before_a_tool_is_entered(store: Store, reader: Store) -> None:
    """Those of all calls that run together."""
    seen: list[list[str]] = []

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        seen.append(await saved(reader))
        return "seen"

    calls = [tool_call("look"), tool_call("look")]

    await Agent(FakeModel([calls, "done"]), tools=[look], store=store).run("Look", id="s")

    assert seen[0] == [*ASKED, "model_replied", "tool_started", "tool_started"]


async def test_a_result_is_saved_while_its_siblings_run(store: Store, reader: Store) -> None:
    """At once, so that a crash of the slow one does not take it along."""
    quick_is_saved = anyio.Event()

    @tool
    async def quick() -> str:
        """Be quick."""
        return "quick"

    @tool
    async def slow() -> str:
        """Wait until the other result is in the store."""
        await wait_for(quick_is_saved)
        return "slow"

    async def report(item: object) -> None:
        if getattr(item, "kind", "") == "tool_finished":
            quick_is_saved.set()

    calls = [tool_call("slow"), tool_call("quick")]
    agent = Agent(FakeModel([calls, "done"]), tools=[quick, slow], store=store, reporter=report)

    assert await agent.run("Go", id="s") == "done"


async def test_a_reporter_sees_only_what_is_saved(store: Store) -> None:
    """Each Event is told once, when the store has it."""
    state = State(id="s", messages=[Message.user("Look")])
    behind: list[str] = []
    items = Items()

    def report(item: object) -> None:
        items(item)
        revision = getattr(item, "revision", 0)
        if revision > state.saved_revision:
            behind.append(str(item))

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = FakeModel([[tool_call("look"), tool_call("look")], "done"])

    await Agent(model, tools=[look], store=store, reporter=report).run(state)

    assert behind == []
    assert items.kinds == kinds(state)


async def test_what_a_tool_adds_to_the_state_is_saved_with_its_result(store: Store) -> None:
    """Extra data and messages of a tool, in the store before the next step."""

    @tool
    async def note(text: str, context: ToolContext) -> str:
        """Note."""
        with context.state.edit_extra_data() as data:
            data["note"] = text
        context.state.add_message(Message.notice("a note was taken"))
        return "noted"

    state = State(id="s", messages=[Message.user("Note it")])

    await Agent(FakeModel([tool_call("note", text="milk"), "done"]), tools=[note], store=store).run(state)

    loaded = await store.load("s")
    assert loaded.extra_data == {"note": "milk"}
    assert [m.text for m in loaded.messages if m.is_plain] == ["Note it", "a note was taken"]
    assert loaded.snapshot() == state.snapshot()


async def test_loading_gives_the_state_at_every_event(store: Store, reader: Store) -> None:
    """In mid-turn too, and loading changes nothing."""
    state = State(id="s", messages=[Message.user("Look")])
    snapshots = {1: state.snapshot()}

    def report(item: object) -> None:
        if getattr(item, "revision", 0):
            snapshots[state.revision] = state.snapshot()

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = FakeModel([[tool_call("look"), tool_call("look")], "done"])

    # A reporter comes later; this is called in the moment.
    await Agent(model, tools=[look], store=store)._run(state, report)

    for revision, snapshot in snapshots.items():
        assert (await reader.load("s", revision)).snapshot() == snapshot
    assert (await reader.load("s")).revision == state.revision


async def test_a_run_that_cannot_begin_leaves_nothing(store: Store) -> None:
    """Not in the store and not in the State, whose message still waits to be saved."""
    state = State(id="s", messages=[Message.user("Hello")])
    await store.save(State(id="s", messages=[Message.user("Another")]))

    with pytest.raises(StateExistsError):
        await Agent(FakeModel(["never"]), store=store).run(state)

    assert (kinds(state), state.saved_revision, state.run_id) == (["message_added"], 0, None)
    assert kinds(await store.load("s")) == ["message_added"]
