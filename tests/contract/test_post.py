"""Posting: anyone may add to the inbox at any time, and nothing is lost."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from alpineagents import (
    ConfigError,
    Image,
    Message,
    State,
    StateConflictError,
    Store,
    TextBlock,
    ToolCall,
    ToolResultBlock,
)
from alpineagents.events import AgentInfo, ApprovalRequested, ModelReplied, ModelRequested, RunStarted
from tests.contract.backends import saved, words_in


async def test_a_post_returns_its_revision(store: Store) -> None:
    """The next one, without loading the State."""
    await saved(store, "s", "one")

    assert await store.post("s", Message.user("two")) == 2
    assert await store.post("s", Message.notice("three")) == 3
    assert await words_in(store) == ["one", "two", "three"]


async def test_what_is_posted_is_a_message_of_a_person_or_a_program(store: Store) -> None:
    """Replies and results come from runs."""
    await saved(store)
    wrong: list[Any] = [
        "hello",
        None,
        Message(role="assistant", content=(TextBlock(text="I reply"),)),
        Message(role="user", content=(ToolResultBlock(call_id="c"),)),
        Message(role="user", content=(ToolCall(id="c", name="t"),)),
    ]

    for message in wrong:
        with pytest.raises(ConfigError, match=r"store\.post\(id, Message\.user"):
            await store.post("s", message)
    assert (await store.info("s")).revision == 1


async def test_an_image_can_be_posted(store: Store) -> None:
    """It comes back as it was."""
    await saved(store)
    message = Message.user("What is this?", Image.from_bytes(b"\x89PNG", "image/png"))

    await store.post("s", message)

    assert (await store.load("s")).messages[-1] == message


async def test_posts_at_once_are_all_kept(store: Store) -> None:
    """Each at a revision of its own, without a gap."""
    await saved(store, "s", "begin")
    revisions: list[int] = []

    async def post(number: int) -> None:
        revisions.append(await store.post("s", Message.user(str(number))))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(post, number)

    assert sorted(revisions) == list(range(2, 22))
    assert sorted(await words_in(store)) == sorted(["begin", *map(str, range(20))])


async def test_posts_beside_saves_are_all_kept(store: Store) -> None:
    """The saves meet conflicts and load again; neither side loses a message."""
    await saved(store, "s", "begin")

    async def post() -> None:
        for number in range(20):
            await store.post("s", Message.user(f"posted {number}"))

    async def save() -> None:
        for number in range(20):
            while True:
                state = await store.load("s")
                state.add_message(Message.user(f"saved {number}"))
                try:
                    await store.save(state)
                    break
                except StateConflictError:
                    continue

    async with anyio.create_task_group() as group:
        group.start_soon(post)
        group.start_soon(save)

    words = await words_in(store)
    assert [word for word in words if word.startswith("posted")] == [f"posted {number}" for number in range(20)]
    assert [word for word in words if word.startswith("saved")] == [f"saved {number}" for number in range(20)]
    assert len(words) == 41


async def test_a_post_into_an_open_turn_waits_for_its_end(store: Store) -> None:
    """It is stored at once and enters the context after the results."""
    state = State(id="s", messages=[Message.user("look")])
    state.add_message(Message(role="assistant", content=(ToolCall(id="c", name="t"),)))
    await store.save(state)

    await store.post("s", Message.user("hurry"))

    loaded = await store.load("s")
    assert [message.role for message in loaded.messages] == ["user", "assistant"]
    assert [message.text for message in loaded.snapshot().queued] == ["hurry"]


async def test_a_decision_reaches_the_call_that_waits(store: Store) -> None:
    """By the call's id, with who decided and why."""
    state = State(id="s", messages=[Message.user("look")])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.record(ModelRequested, model="m")
    calls = tuple(ToolCall(id=call_id, name="t") for call_id in ("c1", "c2", "c3"))
    state.record(ModelReplied, message=Message(role="assistant", content=calls))
    for call in calls:
        state.record(ApprovalRequested, call_id=call.id, digest="d")
    await store.save(state)

    await store.approve("s", "c3", by="Heidi", note="fine")
    await store.deny("s", "c1", by="Peter", reason="too dear")

    found = (await store.load("s")).snapshot().calls
    assert {call_id: (call.approval, call.decided_by, call.note) for call_id, call in found.items()} == {
        "c1": ("denied", "Peter", "too dear"),
        "c2": ("requested", "", ""),
        "c3": ("approved", "Heidi", "fine"),
    }


async def test_a_cancel_request_reaches_the_run(store: Store) -> None:
    """With the name of who asked."""
    state = State(id="s", messages=[Message.user("look")])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    await store.save(state)

    await store.cancel("s", by="Heidi", reason="enough")

    assert (await store.load("s")).snapshot().cancelled_by == "Heidi"
    assert (await store.info("s")).status == "running"


async def test_a_post_makes_a_finished_state_ready(store: Store) -> None:
    """In the header too, so that whoever looks for work finds it."""
    state = State(id="s", messages=[Message.user("look")])
    state.finish("done")
    await store.save(state)

    await store.post("s", Message.user("and now?"))

    assert (await store.info("s")).status == (await store.load("s")).status == "ready"
    assert [info.id for info in await store.list(status="ready")] == ["s"]
