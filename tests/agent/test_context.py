"""The context: what it takes of the window, summaries in its place, and a State that is too long for its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    ConfigError,
    ContextChanged,
    ContextTooLongError,
    EventOrderError,
    Image,
    Message,
    ModelFailed,
    ProviderError,
    RawBlock,
    Reply,
    Request,
    State,
    Store,
    TextBlock,
    ToolCall,
    Usage,
    compact_if_full,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.context import PREFACE, cut, split, tokens_of
from alpineagents.models.responses_wire import to_wire
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Failing, Place, check_closed, complaints, kinds, of, wait_for

WORDS = "Which peaks are over 4,000 m? "


@tool(read_only=True)
async def look(size: int = 10) -> str:
    """Look."""
    return "x" * size


def is_summary(request: Request) -> bool:
    return "<conversation>" in request.messages[-1].text


def size_of(request: Request) -> int:
    return tokens_of(request.messages)


def summarizing(*replies: Any, window: int | None = None, summary: Any = "They talked.") -> FakeModel:
    """A model that answers what it is asked for a summary with one, and refuses what is too long for its window."""
    left = list(replies)

    def respond(request: Request) -> Any:
        if window is not None and size_of(request) > window:
            raise ContextTooLongError("too long")
        return summary if is_summary(request) else left.pop(0)

    return FakeModel(respond, context_tokens=window)


def talked(turns: int, id: str = "s") -> State:
    """A State of so many turns with a call each, and an answer to each."""
    state = State(id=id)
    for n in range(turns):
        state.add_message(Message.user(f"question {n}"))
        state.add_message(Message(role="assistant", content=(ToolCall(id=f"c{n}", name="look"),)))
        call = state.pending_calls[0]
        state.add_message(
            Message.model_validate(
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "call_id": call.id, "content": [{"type": "text", "text": f"r{n}"}]}
                    ],
                }
            )
        )
        state.add_message(Message(role="assistant", content=(TextBlock(text=f"answer {n}"),)))
    return state


# ------------------------------------------------------------------------------------------------ how much it takes


def test_tokens_are_estimated_until_a_provider_has_counted_them() -> None:
    """System prompt and tools take some as well, and so does an image."""
    state = State(messages=[Message.user(WORDS * 10)])
    plain = Agent(FakeModel([])).context_tokens(state)

    assert plain == pytest.approx(len(WORDS) * 10 / 4, rel=0.1)
    assert Agent(FakeModel([]), system="x" * 400).context_tokens(state) == plain + 100
    assert Agent(FakeModel([]), tools=[look]).context_tokens(state) > plain
    state.add_message(Message.user("", Image.from_bytes(b"GIF89a", "image/gif")))
    assert Agent(FakeModel([])).context_tokens(state) > plain + 1_000


async def test_what_the_provider_counted_counts() -> None:
    """With an estimate of what came after it only; a summary makes it an estimate again."""
    message = Message(role="assistant", content=(TextBlock(text="4,478 m"),))
    reply = Reply(message=message, usage=Usage(input_tokens=700, output_tokens=50, requests=1))
    agent = Agent(FakeModel([reply]))
    state = State(messages=[Message.user("How high?")])

    await agent.run(state)
    assert agent.context_tokens(state) == 750
    state.add_message(Message.user("x" * 400))
    assert agent.context_tokens(state) == 750 + 104
    state.compact("short")
    assert agent.context_tokens(state) < 20


def test_what_is_used_is_a_part_of_the_window() -> None:
    """None where the model does not tell how large that is."""
    state = State(messages=[Message.user("x" * 400)])

    assert Agent(FakeModel([], context_tokens=208)).context_used(state) == 0.5
    assert Agent(FakeModel([])).context_used(state) is None


# ------------------------------------------------------------------------------------------------ summaries


@pytest.mark.parametrize("keep, stay", [(0, 0), (1, 1), (2, 3), (3, 3), (4, 4), (5, 5), (6, 7), (99, 12)])
def test_no_call_is_parted_from_its_result(keep: int, stay: int) -> None:
    """Rather one more message stays."""
    head, tail = split(talked(3).messages, keep)

    assert (len(tail), len(head)) == (stay, 12 - stay)
    assert complaints(head) == complaints(tail) == []


def test_what_waits_for_an_answer_stays() -> None:
    """Word by word, however little is to be kept."""
    state = talked(1)
    state.add_message(Message.user("one more"))
    state.add_message(Message.notice("and this"))

    assert [message.text for message in split(state.messages, 0)[1]] == ["one more", "and this"]


@pytest.mark.parametrize("keep", range(13))
async def test_a_call_and_its_reasoning_go_together(keep: int, store: Store) -> None:
    """However the context is made shorter, by a summary, a clearing or a crash in the turn: a provider takes it."""
    state = talked(3)
    messages = [
        message.model_copy(update={"content": (RawBlock(provider="p", data=reasoning(n)), *message.content)})
        if message.tool_calls
        else message
        for n, message in enumerate(state.messages)
    ]
    state = State(id="s", messages=messages)
    await Agent(summarizing(), store=store).compact(state, keep=keep)
    compacted = await store.load("s")
    cleared = compacted.fork()
    cleared.clear_tool_results(keep=keep // 4)

    for value in (compacted, cleared):
        items = to_wire(Request(messages=tuple(value.messages)), provider="p")["input"]
        kinds_of = [item.get("type") for item in items]
        led_to = [kinds_of[at + 1] for at, kind in enumerate(kinds_of) if kind == "reasoning"]
        assert led_to == ["function_call"] * kinds_of.count("function_call")
        assert kinds_of.count("function_call_output") == kinds_of.count("function_call") == len(led_to)


def reasoning(n: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "gAAAA"}


async def test_a_summary_takes_the_place_of_the_context(store: Store) -> None:
    """The model writes it from all that goes; the history keeps what it was, and usage counts it."""
    model = summarizing(
        summary=Reply(
            message=Message(role="assistant", content=(TextBlock(text="They talked."),)),
            usage=Usage(input_tokens=90, output_tokens=9, requests=1),
        )
    )
    state = talked(3)

    summary = await Agent(model, tools=[look], store=store).compact(state, instructions="Mind the heights.", keep=4)

    assert summary == "They talked."
    assert [message.text for message in state.messages] == [PREFACE + "They talked.", "question 2", "", "", "answer 2"]
    assert state.messages[0].is_notice
    (request,) = model.requests
    said = request.messages[0].text
    assert all(part in said for part in ("Mind the heights.", "question 0", "r1", "answer 1", "look"))
    assert "question 2" not in said
    assert state.usage == Usage(input_tokens=90, output_tokens=9, requests=1)
    assert [message.text for message in (await store.load("s", 12)).messages][-1] == "answer 2"
    assert of(state, ContextChanged)[0].reason == "compact"
    assert kinds(state)[12:] == ["run_started", "model_requested", "context_changed", "run_stopped"]
    await check_closed(store, state)


async def test_a_summary_of_what_was_answered_asks_for_no_answer(store: Store) -> None:
    """The State stays stopped, however often, so no worker takes it for work; what is said then makes it ready."""
    agent = Agent(summarizing("4,478 m", "4,634 m", "4,478 m"), store=store)
    await agent.run("How high is the Matterhorn?", id="s")

    for tail in (False, True):
        state = await store.load("s", tail=tail)
        assert await agent.compact(state, keep=0) is not None
        assert (state.status, (await store.info("s")).status) == ("stopped", "stopped")
        assert await agent.resume("s", "And the highest?", tail=tail)
    state = await store.load("s")
    await agent.compact(state, keep=0)
    await agent.compact(state, keep=0)
    await check_closed(store, state)
    assert await store.list(status="ready") == []
    await store.post("s", Message.user("Once more"))

    assert [info.id for info in await store.list(status="ready")] == ["s"]


async def test_a_message_that_comes_during_a_summary_makes_the_state_ready(store: Store) -> None:
    """It came in and was not answered, whatever the summary says."""

    async def respond(request: Request) -> Any:
        if is_summary(request):
            await store.post("s", Message.user("Hurry!"))
            return "They talked."
        return "4,478 m"

    agent = Agent(FakeModel(respond), store=store)
    await agent.run("How high?", id="s")
    state = await store.load("s")

    await agent.compact(state, keep=0)

    assert (state.status, (await store.info("s")).status) == ("ready", "ready")


async def test_what_is_short_already_is_not_asked_about() -> None:
    """Where all stays, and where a summary is all that there is."""
    model = summarizing("never")
    agent = Agent(model)

    assert await agent.compact(talked(1), keep=4) is None
    state = talked(2)
    assert await agent.compact(state, keep=0) == "They talked."
    assert await agent.compact(state, keep=0) is None
    assert len(model.requests) == 1


async def test_a_summary_cannot_be_written_while_calls_are_open() -> None:
    """The error says what to do first."""
    state = talked(1)
    state.add_message(Message.user("Go"))
    state.add_message(Message(role="assistant", content=(ToolCall(id="c", name="look"),)))

    with pytest.raises(EventOrderError, match=r"await agent\.use_tools\(state\)"):
        await Agent(summarizing()).compact(state, keep=0)


@pytest.mark.parametrize("failure", [ProviderError("overloaded"), " ", tool_call("look")])
async def test_without_a_summary_the_context_stays(store: Store, failure: Any) -> None:
    """What failed is recorded, and counted."""
    state = talked(2)
    before = state.messages

    with pytest.raises(ProviderError):
        await Agent(summarizing(summary=failure), store=store).compact(state, keep=0)

    assert (state.messages, len(of(state, ModelFailed)), state.usage.requests) == (before, 1, 1)
    await check_closed(store, state)


@pytest.mark.parametrize("keep", [-1, 1.0, "4", None, True])
async def test_what_is_no_number_of_messages_is_refused(keep: Any) -> None:
    """Before anything is recorded."""
    state = talked(1)

    with pytest.raises(ConfigError, match="keep="):
        await Agent(summarizing()).compact(state, keep=keep)
    with pytest.raises(ConfigError, match="keep="):
        state.clear_tool_results(keep=keep)
    assert state.revision == 4


async def test_a_message_that_comes_during_a_summary_is_not_lost(store: Store) -> None:
    """It is no part of the summary, so it stands behind it, once; and it is answered."""
    state = talked(2)
    await store.save(state)

    async def respond(request: Request) -> Any:
        if is_summary(request):
            await store.post("s", Message.user("And the Eiger?"))
            return "They talked."
        return f"about {request.messages[-1].text}"

    @loop(until=waiting_for_user, limit=3)
    async def turning(agent: Agent, state: State) -> None:
        await agent.compact(state, keep=0)
        await agent.think(state)

    state.add_message(Message.user("Go on"))

    assert await Agent(FakeModel(respond), loop=turning, store=store).run(state) == "about And the Eiger?"

    texts = [message.text for message in state.messages]
    assert texts == [PREFACE + "They talked.", "Go on", "And the Eiger?", "about And the Eiger?"]
    await check_closed(store, state)


async def test_a_message_that_comes_before_a_summary_is_asked_for_is_in_it_or_behind_it(place: Place) -> None:
    """It came between the last Event that the run has seen and the request."""
    from tests.agent.parts import Watcher

    class Posting(Watcher):
        async def append(self, events: Any, land: Callable[[], Any]) -> int:
            if [event.kind for event in events] == ["model_requested"] and not self.posted:
                self.posted = True
                await other.post("s", Message.user("And the Eiger?"))
            landed: int = await land()
            return landed

        posted = False

    async with place.open(Posting()) as store:
        other = store
        state = talked(2)
        await store.save(state)

        await Agent(summarizing(), store=store).compact(state, keep=0)

        texts = [message.text for message in state.messages]
        assert texts == [PREFACE + "They talked.", "And the Eiger?"]
        await check_closed(store, state)


async def test_a_summary_that_is_cancelled_leaves_the_context(store: Store) -> None:
    """And a State that can be run again."""
    asked = anyio.Event()

    async def respond(request: Request) -> Any:
        asked.set()
        await anyio.sleep_forever()

    state = talked(2)
    before = state.messages
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: Agent(FakeModel(respond), store=store).compact(state, keep=0))
        await wait_for(asked)
        group.cancel_scope.cancel()

    assert state.messages == before
    assert of(state, ModelFailed)[0].outcome == "cancelled"
    await check_closed(store, state)


async def test_a_summary_that_a_crash_interrupted_is_asked_for_again(store: Store) -> None:
    """The request is in the history, so the next run closes it, counts it and goes on."""
    agent = Agent(summarizing("done"), store=store)
    state = talked(2)
    await agent.compact(state, keep=0)
    requested = next(event.revision for event in state.history if event.kind == "model_requested")
    left = (await store.load("s", requested)).fork(id="left")
    await store.save(left)

    assert await agent.compact(await store.load("left"), keep=0) == "They talked."

    loaded = await store.load("left")
    assert [event.outcome for event in of(loaded, ModelFailed)] == ["interrupted"]
    assert loaded.messages == state.messages
    await check_closed(store, loaded)


@pytest.mark.parametrize("at", range(2, 5))
async def test_a_store_that_fails_loses_no_summary(place: Place, at: int) -> None:
    """What is not saved stays in the State, and can be saved later."""
    async with place.open(Failing(at, landed=True)) as store:
        state = talked(2)
        try:
            await Agent(summarizing(), store=store).compact(state, keep=0)
        except Exception:  # noqa: BLE001  # whatever the store raises
            await store.save(state)

        assert (await store.load("s")).snapshot() == state.snapshot()


def test_a_person_cannot_compact_while_a_run_asks_the_model() -> None:
    """It would count as the reply."""
    state = talked(1)
    state.add_message(Message.user("Go"))
    from alpineagents import ModelRequested, RunStarted
    from alpineagents.events import AgentInfo

    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.record(ModelRequested, model="m")

    with pytest.raises(EventOrderError, match="has not replied"):
        state.compact("short")


# ------------------------------------------------------------------------------------------------ too long


async def test_a_state_that_is_too_long_for_its_model_recovers(store: Store) -> None:
    """A result filled the window: a summary takes the place of what led up to it, and the model is asked once more."""
    model = summarizing(tool_call("look", size=100_000), "done", window=5_000)
    agent = Agent(model, tools=[look], store=store)
    state = State(id="s", messages=[Message.user("Look")])

    assert await agent.run(state) == "done"

    assert [type(event).__name__ for event in of(state, ModelFailed)] == ["ModelFailed"]
    assert of(state, ModelFailed)[0].error == "ContextTooLongError"
    assert [message.text for message in state.messages] == [PREFACE + "They talked.", "Look", "done"]
    assert max(size_of(request) for request in model.requests[2:]) < 5_000
    await check_closed(store, state)


async def test_a_question_that_made_it_too_long_is_answered(store: Store) -> None:
    """It stays word by word, and each next run goes on."""
    model = summarizing("one", "two", window=300)
    agent = Agent(model, store=store)
    state = talked(30)
    await store.save(state)

    assert await agent.resume("s", "And now?") == "one"
    assert await agent.resume("s", "And then?") == "two"

    loaded = await store.load("s")
    assert [message.text for message in loaded.messages][1:] == ["And now?", "one", "And then?", "two"]
    assert len(of(loaded, ContextChanged)) == 1


async def test_a_summary_is_asked_of_less_where_the_request_for_it_is_too_long() -> None:
    """The window is smaller than it was taken for."""
    model = summarizing("done", window=4_000)
    model.context_tokens = None
    state = talked(1)
    for _ in range(60):
        state.add_message(Message.user("y" * 20_000))
    state.add_message(Message(role="assistant", content=(TextBlock(text="read"),)))
    state.add_message(Message.user("Go on"))

    assert await Agent(model).run(state) == "done"

    assert max(map(size_of, model.requests[:2])) > 4_000
    assert [message.text for message in state.messages] == [PREFACE + "They talked.", "Go on", "done"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("window", [300, 500, 1_000, 2_000, 4_000, 8_000, 13_000, 50_000, 200_000])
async def test_a_window_of_any_size_recovers(window: int, known: bool) -> None:
    """Whether the model says how large it is or not; the summary leaves room in it, however long the model makes it."""
    model = summarizing("done", window=window, summary="They talked. " * (window // 3))
    model.context_tokens = window if known else None
    state = talked(3)
    for _ in range(20):
        state.add_message(Message.user("y" * (window // 4)))
    state.add_message(Message(role="assistant", content=(TextBlock(text="read"),)))
    state.add_message(Message.user("Go on"))

    assert await Agent(model).run(state) == "done"

    assert [message.text for message in state.messages][1:] == ["Go on", "done"]
    assert size_of(model.requests[-1]) <= window
    assert len(model.requests) <= 7


async def test_a_summary_for_a_small_window_is_asked_to_be_short() -> None:
    """In words, so that the model can mind it; a large one asks for no such thing."""
    asked = []
    for window in (2_000, 200_000):
        model = summarizing(window=window)
        await Agent(model).compact(talked(5))
        asked.append(model.requests[-1].messages[0].text)

    assert "Use at most 166 words." in asked[0]
    assert "Use at most" not in asked[1]


async def test_what_no_summary_can_shorten_is_an_error(store: Store) -> None:
    """A question that is too long by itself; the model is not asked again for nothing."""
    model = summarizing(window=100)
    state = State(id="s", messages=[Message.user("x" * 4_000)])

    for tries in (1, 2):
        with pytest.raises(ContextTooLongError):
            await Agent(model, store=store).run(state)
        assert len(model.requests) == tries
    assert state.status == "failed"
    await check_closed(store, state)


async def test_it_is_asked_once_more_only() -> None:
    """A model that says so each time does not cost for ever."""

    def respond(request: Request) -> Any:
        return "They talked." if is_summary(request) else ContextTooLongError("too long")

    model = FakeModel(respond)
    state = talked(2)
    state.add_message(Message.user("Go"))

    with pytest.raises(ContextTooLongError):
        await Agent(model).run(state)
    assert len(model.requests) == 3


# ------------------------------------------------------------------------------------------------ within loops


@loop(until=waiting_for_user, limit=9)
async def bounded(agent: Agent, state: State) -> None:
    await compact_if_full(agent, state, at=0.5, keep=2)
    await agent.think(state)
    await agent.use_tools(state)


async def test_a_loop_compacts_before_the_window_is_full(store: Store) -> None:
    """No request is longer than the window."""
    calls = [tool_call("look", size=800) for _ in range(8)]
    model = summarizing(*calls, "done", window=1_000)
    state = State(id="s", messages=[Message.user("Look around")])

    assert await Agent(model, tools=[look], loop=bounded, store=store).run(state) == "done"

    assert of(state, ModelFailed) == []
    assert 2 <= len(of(state, ContextChanged)) <= 4
    await check_closed(store, state)


async def test_what_is_kept_gives_way_where_it_fills_the_window_alone() -> None:
    """Or each turn would ask for a summary that changes nothing."""
    model = summarizing(tool_call("look", size=2_400), "done", window=1_000)
    state = State(messages=[Message.user("Look")])

    assert await Agent(model, tools=[look], loop=bounded).run(state) == "done"

    assert [message.text for message in state.messages] == [PREFACE + "They talked.", "Look", "done"]


async def test_a_window_that_is_not_known_is_told_before_the_model_is_asked() -> None:
    """With the line to write."""
    model = FakeModel(["never"])

    with pytest.raises(ConfigError, match=r"model\.context_tokens = 200_000"):
        await Agent(model, loop=bounded).run("Go")
    assert model.requests == []


@pytest.mark.parametrize("at", [0, -1, 1.5, "half", None])
async def test_what_is_no_part_of_a_window_is_refused(at: Any) -> None:
    """With the line to write."""
    with pytest.raises(ConfigError, match=r"at=0\.6"):
        await compact_if_full(Agent(FakeModel([])), State(), at=at)


@pytest.mark.parametrize("length, limit", [(10, 10), (11, 10), (5_000, 100), (3, 0), (100, 1)])
def test_what_is_cut_keeps_its_ends(length: int, limit: int) -> None:
    """And says how much is gone."""
    text = "a" * (length - 1) + "z"
    shorter = cut(text, limit)

    assert shorter.replace("\n", "").startswith(text[: limit * 2 // 3])
    assert shorter == text if length <= limit else f"{length - limit:,} characters left out" in shorter


async def test_a_question_stays_while_calls_for_its_answer_are_made(store: Store) -> None:
    """It is not the last message by then, and a summary need not repeat it."""

    @tool(read_only=True)
    def read(page: int) -> str:
        """Read a page."""
        return "z" * 700

    def respond(request: Request) -> object:
        if request.system and request.system.startswith("You write summaries"):
            return "Some pages were read."
        if size_of(request) > 500:
            raise ContextTooLongError("too long")
        read_so_far = sum(len(message.tool_results) for message in request.messages)
        return tool_call("read", page=read_so_far) if read_so_far < 3 and len(asked) < 5 else "fini"

    asked: list[Request] = []

    def counted(request: Request) -> object:
        asked.append(request)
        return respond(request)

    agent = Agent(FakeModel(counted), tools=[read], store=store)

    assert await agent.run("Count the peaks on every page; answer in French.", id="s") == "fini"

    loaded = await store.load("s")
    assert of(loaded, ContextChanged)
    assert [message.text for message in loaded.messages][1] == "Count the peaks on every page; answer in French."
