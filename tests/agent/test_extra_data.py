"""Extra data in runs: tools of one turn change it at once, it is saved with them, and no model sees it."""

from __future__ import annotations

import json

import anyio

from alpineagents import Agent, Message, State, Store, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed

SECRET = "0451-for-nobody"


@tool
async def note(word: str, context: ToolContext) -> str:
    """Note a word."""
    async with context.state.edit_extra_data() as data:
        log = data["log"]
        assert isinstance(log, list)
        await anyio.lowlevel.checkpoint()
        log.append(word)
        data[word] = SECRET
    return "noted"


@tool
def note_in_a_thread(word: str, context: ToolContext) -> str:
    """Note a word."""
    with context.state.edit_extra_data() as data:
        log = data["log"]
        assert isinstance(log, list)
        log.append(word)
        data[word] = SECRET
    return "noted"


async def test_tools_of_one_turn_change_the_data_at_once(store: Store) -> None:
    """Async ones that await within the block, and sync ones in threads: nothing of theirs is lost."""
    words = [f"w{n}" for n in range(12)]
    calls = [tool_call("note" if n % 2 else "note_in_a_thread", word=word) for n, word in enumerate(words)]
    model = FakeModel([calls, "done"])
    state = State(id="s", messages=[Message.user("Go")], extra_data={"log": []})

    assert await Agent(model, tools=[note, note_in_a_thread], store=store).run(state) == "done"

    log = state.extra_data["log"]
    assert isinstance(log, list)
    assert sorted(map(str, log)) == sorted(words)
    assert state.extra_data.keys() == {"log", *words}
    await check_closed(store, state)


async def test_no_model_sees_the_extra_data(store: Store) -> None:
    """In no part of a request."""
    model = FakeModel([tool_call("note", word="w"), "done"])
    state = State(id="s", messages=[Message.user("Go")], extra_data={"log": [], "key": SECRET})

    await Agent(model, system="Be brief.", tools=[note], store=store).run(state)

    assert len(model.requests) == 2
    assert all(SECRET not in json.dumps(request.model_dump(mode="json")) for request in model.requests)
