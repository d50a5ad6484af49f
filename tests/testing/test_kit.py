"""What the kit for tests promises: time and ids that stand still, and replies that are recorded once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from alpineagents import (
    Agent,
    AuthError,
    ConfigError,
    Delta,
    MemoryStore,
    Message,
    Model,
    RateLimitError,
    State,
    Store,
    tool,
)
from alpineagents.stores.codec import encode
from alpineagents.testing import FakeModel, frozen, record_model, tool_call


@tool(read_only=True)
def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


async def history() -> list[Any]:
    with frozen() as clock:
        store = MemoryStore()
        model = FakeModel([tool_call("look"), "done"])
        state = State(messages=[Message.user("Go")])
        clock.advance(5)
        await Agent(model, tools=[look], store=store).run(state)
        await store.post(state.id, Message.user("More"))
        return [encode(event) for event in (await store.load(state.id)).history]


async def test_two_runs_in_frozen_time_are_the_same() -> None:
    """Row by row, so a test can compare whole histories."""
    assert await history() == await history()


async def test_time_goes_by_when_it_is_told_to() -> None:
    """And is real again behind the block."""
    with frozen(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) as clock:
        state = State(messages=[Message.user("a")])
        clock.advance(1.5)
        state.add_message(Message.user("b"))
    state.add_message(Message.user("c"))

    ats = [event.at for event in state.history]
    assert ats[:2] == [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]
    assert abs(datetime.now(UTC) - ats[2]) < timedelta(minutes=5)
    assert State().id != State().id


def test_blocks_may_stand_within_each_other() -> None:
    """The inner one counts for itself."""
    with frozen():
        first = State().id
        with frozen(datetime(2027, 1, 1, tzinfo=UTC)):
            assert State().id == first
        assert State().id != first


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001  # that is what is refused
def test_a_time_without_a_zone_is_refused(at: Any) -> None:
    """With the line to write."""
    with pytest.raises(ConfigError, match="tzinfo=UTC"):
        frozen(at)


async def test_saves_in_two_frozen_blocks_are_told_apart() -> None:
    """Ids begin anew, those of appends do not: nothing is taken for a second try of what is there."""
    store = MemoryStore()
    for text in ("a", "b"):
        with frozen():
            state = await store.load("s") if await store.exists("s") else State(id="s")
            state.add_message(Message.user(text))
            await store.save(state)

    assert [message.text for message in (await store.load("s")).messages] == ["a", "b"]


# ------------------------------------------------------------------------------------------------ recordings


def agent(model: Model) -> Agent:
    return Agent(model, system="Be brief.", tools=[look])


async def test_a_recording_needs_no_model(tmp_path: Path) -> None:
    """The same run replays, with its calls and usage, and nobody is asked."""
    path = tmp_path / "run.json"
    real = FakeModel([tool_call("look", at="dawn"), "done", "again"], name="real-1")
    first, again = State(messages=[Message.user("Go")]), State(messages=[Message.user("Go")])
    recording = agent(record_model(real, path))
    await recording.run(first)

    nobody = FakeModel([])
    assert await agent(record_model(nobody, str(path))).run(again) == "done"

    assert again.messages == first.messages
    assert again.usage == first.usage
    assert again.snapshot().agent == first.snapshot().agent
    assert nobody.requests == []


async def test_a_replay_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up only to record."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "run.json"
    with pytest.raises(AuthError):
        await Agent(record_model("gpt-5", path)).run("Go")
    await Agent(record_model(FakeModel(["done"], name="gpt-5"), path)).run("Go")

    model = record_model("gpt-5", path)

    assert await Agent(model).run("Go") == "done"
    assert model.name == "gpt-5"
    await model.aclose()


async def test_what_was_not_recorded_is_an_error(tmp_path: Path) -> None:
    """It names the file to delete, and no model is asked in secret."""
    path = tmp_path / "run.json"
    await agent(record_model(FakeModel(["done"]), path)).run("Go")
    before = path.read_bytes()
    model = FakeModel(["never"])

    with pytest.raises(ConfigError, match=r"run\.json' has no reply to 'Go on'.*Delete the file"):
        await agent(record_model(model, path)).run("Go on")
    assert (model.requests, path.read_bytes()) == ([], before)


async def test_one_request_made_twice_gets_its_replies_in_turn(tmp_path: Path) -> None:
    """And the last one from then on."""
    path = tmp_path / "run.json"
    recording = Agent(record_model(FakeModel(["a", "b"]), path))
    assert [await recording.run("Go") for _ in range(2)] == ["a", "b"]

    replaying = Agent(record_model(FakeModel([]), path))

    assert [await replaying.run("Go") for _ in range(3)] == ["a", "b", "b"]


async def test_a_failure_is_not_recorded(tmp_path: Path) -> None:
    """It is raised, and what came before it is kept."""
    path = tmp_path / "run.json"
    recording = Agent(record_model(FakeModel(["a", RateLimitError("slow down")]), path))
    await recording.run("one")

    with pytest.raises(RateLimitError):
        await recording.run("two")

    assert await Agent(record_model(FakeModel([]), path)).run("one") == "a"


async def test_a_replay_is_streamed(tmp_path: Path) -> None:
    """In parts, as it came."""
    path = tmp_path / "run.json"
    await Agent(record_model(FakeModel(["Good day to you"]), path)).run("Hello")

    async with Agent(record_model(FakeModel([]), path)).stream("Hello") as items:
        parts = [item.text async for item in items if isinstance(item, Delta)]

    assert len(parts) > 1
    assert "".join(parts) == "Good day to you"


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"format": 1}', '{"format": 2, "model": "m", "replies": []}', "\udcff"]
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: str) -> None:
    """With the file to delete, before anything is run."""
    path = tmp_path / "run.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))

    with pytest.raises(ConfigError, match=r"run\.json.*Delete"):
        record_model(FakeModel([]), path)


# ------------------------------------------------------------------------------------------------ prepared replies


@pytest.mark.parametrize(
    "item, hint",
    [
        (5, "a text, a call such as"),
        (None, "a text, a call such as"),
        ({"text": "done"}, "a text, a call such as"),
        (["done", 5], "a text, a call such as"),
        (["done", RateLimitError("slow down")], "a text, a call such as"),
        ([["done"]], "a text, a call such as"),
        (b"done", "a text, a call such as"),
        (RateLimitError, r"RateLimitError\("),
        (Message(role="assistant", content="done"), "Reply"),
        (tool_call, None),
    ],
)
def test_what_is_no_reply_is_refused_at_once(item: Any, hint: str | None) -> None:
    """With its place in the list, and what can stand there; a function is called only when its turn comes."""
    if hint is None:
        assert FakeModel(["done", item]).remaining == 2
        return
    with pytest.raises(ConfigError, match=f"reply 1 of FakeModel is .*{hint}"):
        FakeModel(["done", item])


@pytest.mark.parametrize("replies", ["done", b"done", 5, None, tool_call("look"), RateLimitError, {"a": "b"}])
def test_what_is_no_list_of_replies_is_refused_at_once(replies: Any) -> None:
    """With the list to write."""
    with pytest.raises(ConfigError, match=r"FakeModel\(\["):
        FakeModel(replies)


@pytest.mark.parametrize("replies", [lambda request: 5, [lambda request: 5]])
async def test_what_a_function_gives_is_checked_when_it_gives_it(replies: Any) -> None:
    """And the function is named."""
    with pytest.raises(ConfigError, match=r"<lambda> gave back to FakeModel is 5, where it can be a text"):
        await Agent(FakeModel(replies)).run("Go")


@pytest.mark.asyncio_only
async def test_a_store_of_any_kind_can_be_used_in_frozen_time(tmp_path: Path) -> None:
    """Leases go by the store's own clock."""
    from alpineagents import FileStore, SQLStore

    stores: list[Store] = [SQLStore(str(tmp_path / "agents.db")), FileStore(tmp_path / "runs")]
    for store in stores:
        with frozen():
            async with store:
                assert await Agent(FakeModel(["done"]), store=store).run("Go", id="s") == "done"
                assert (await store.info("s")).created_at == datetime(2026, 1, 1, tzinfo=UTC)
