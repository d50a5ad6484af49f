"""One run from outside: what it gives back, what it writes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import (
    Agent,
    ConfigError,
    MemoryStore,
    Message,
    ProviderError,
    Reply,
    Request,
    State,
    StateExistsError,
    StateIdError,
    StateNotFoundError,
    StoppedByError,
    StoppedByFinish,
    StoppedByUntil,
    Store,
    SyncInsideLoopError,
    ToolContext,
    Usage,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, at_once, check_closed, kinds


@tool(read_only=True)
async def height(of: str) -> int:
    """Say how high a mountain is."""
    return {"Matterhorn": 4478}[of]


async def test_a_run_gives_the_models_last_words(store: Store) -> None:
    """The answer is what the model says when it calls no more tools."""
    agent = Agent(FakeModel([tool_call("height", of="Matterhorn"), "4,478 m"]), tools=[height], store=store)

    assert await agent.run("How high is the Matterhorn?") == "4,478 m"


async def test_each_step_is_an_event_in_the_order_it_happened(store: Store) -> None:
    """From the message to the end of the run, and the same in the store."""
    agent = Agent(FakeModel([tool_call("height", of="Matterhorn"), "4,478 m"]), tools=[height], store=store)
    state = State(id="trip", messages=[Message.user("How high is it?")])

    await agent.run(state)

    assert kinds(state) == [
        "message_added",
        "run_started",
        "model_requested",
        "model_replied",
        "tool_started",
        "tool_finished",
        "model_requested",
        "model_replied",
        "run_stopped",
    ]
    await check_closed(store, state)


async def test_a_run_that_ends_says_why(store: Store) -> None:
    """The rule that stopped the loop, in the State and in the list."""
    await Agent(FakeModel(["Hi"]), store=store).run("Hello", id="s")

    info = await store.info("s")
    assert info.stopped == (await store.load("s")).stopped == StoppedByUntil(name="waiting_for_user")
    assert (info.status, info.turn) == ("stopped", 1)


async def test_usage_is_the_sum_over_requests(store: Store) -> None:
    """Of all replies of all runs, and the same in the list."""
    message = Message(role="assistant", content="Yes")
    replies = [Reply(message=message, usage=Usage(input_tokens=n, output_tokens=1, requests=1)) for n in (10, 20, 30)]
    agent = Agent(FakeModel(replies), store=store)

    await agent.run("One?", id="s")
    await agent.resume("s", "Two?")
    await agent.resume("s", "Three?")

    state = await store.load("s")
    assert state.usage == Usage(input_tokens=60, output_tokens=3, requests=3)
    assert (state.turn, (await store.info("s")).usage) == (3, state.usage)


async def test_a_failed_request_counts_in_the_usage(store: Store) -> None:
    """It was made, and may have been paid."""
    agent = Agent(FakeModel([ProviderError("overloaded"), "Hi"]), store=store)
    with pytest.raises(ProviderError):
        await agent.run("Hello", id="s")

    await agent.resume("s")

    usage = (await store.load("s")).usage
    assert (usage.requests, usage.unpriced_requests) == (2, 1)


async def test_a_taken_id_is_refused_before_a_token_is_spent(store: Store) -> None:
    """A new State of an id that the store has does not reach the model, and leaves the old one as it was."""
    await Agent(FakeModel(["Hi"]), store=store).run("Hello", id="demo")
    before = (await store.load("demo")).snapshot()
    model = FakeModel(["never"])

    with pytest.raises(StateExistsError, match=r"await agent\.resume\('demo'"):
        await Agent(model, store=store).run("Hello again", id="demo")

    assert model.requests == []
    assert (await store.load("demo")).snapshot() == before


async def test_resume_goes_on_with_a_message(store: Store) -> None:
    """The model sees what was said before."""
    model = FakeModel(["Hi", "A joke"])
    agent = Agent(model, store=store)
    await agent.run("Hello", id="s")

    assert await agent.resume("s", "Tell me a joke") == "A joke"

    assert [message.text for message in model.requests[1].messages] == ["Hello", "Hi", "Tell me a joke"]


async def test_resume_of_an_answered_state_asks_no_model(store: Store) -> None:
    """There is nothing to answer; the answer is the one that is there."""
    await Agent(FakeModel(["Hi"]), store=store).run("Hello", id="s")
    model = FakeModel(["never"])

    assert await Agent(model, store=store).resume("s") == "Hi"

    assert model.requests == []


async def test_resume_of_a_state_that_is_not_there_names_it(store: Store) -> None:
    """And asks no model."""
    model = FakeModel(["never"])

    with pytest.raises(StateNotFoundError, match="'nowhere'"):
        await Agent(model, store=store).resume("nowhere", "Hello")

    assert model.requests == []


async def test_resume_without_a_store_shows_the_line_to_write() -> None:
    """An Agent that saves nothing has nothing to resume."""
    with pytest.raises(ConfigError, match=r"store=SQLStore"):
        await Agent(FakeModel([])).resume("s")


async def test_the_retry_of_a_failed_resume_stores_the_message_once(store: Store) -> None:
    """The same call again goes on from the stored message."""
    agent = Agent(FakeModel(["Hi", ProviderError("overloaded"), "A joke"]), store=store)
    await agent.run("Hello", id="s")
    with pytest.raises(ProviderError):
        await agent.resume("s", "Tell me a joke")

    assert await agent.resume("s", "Tell me a joke") == "A joke"

    said = [message.text for message in (await store.load("s")).messages]
    assert said == ["Hello", "Hi", "Tell me a joke", "A joke"]


async def test_the_retry_of_a_resume_that_failed_in_a_tool_stores_the_message_once(store: Store) -> None:
    """The message is not at the end of the context then, but it still waits for its answer."""

    @tool
    async def look(n: int) -> str:
        """Look."""
        if n == 1:
            raise RuntimeError("the lamp is broken")
        return "seen"

    model = FakeModel(["Hi", tool_call("look", n=1), tool_call("look", n=2), "A lake"])
    agent = Agent(model, tools=[look], store=store)
    await agent.run("Hello", id="s")
    with pytest.raises(RuntimeError, match="lamp"):
        await agent.resume("s", "What is there?")

    assert await agent.resume("s", "What is there?") == "A lake"

    said = [message.text for message in (await store.load("s")).messages if message.is_plain]
    assert said == ["Hello", "What is there?"]


async def test_the_same_words_after_an_answer_are_a_new_message(store: Store) -> None:
    """Only a message that waits is taken for the one that is to be added."""
    agent = Agent(FakeModel(["One", "Two"]), store=store)
    await agent.run("Go on", id="s")

    assert await agent.resume("s", "Go on") == "Two"

    assert [m.text for m in (await store.load("s")).messages] == ["Go on", "One", "Go on", "Two"]


async def test_a_model_error_is_recorded_and_raised(store: Store) -> None:
    """The run has ended in the history too, and the message waits."""
    agent = Agent(FakeModel([ProviderError("overloaded")]), store=store)

    with pytest.raises(ProviderError, match="overloaded"):
        await agent.run("Hello", id="s")

    state = await store.load("s")
    assert kinds(state)[-2:] == ["model_failed", "run_stopped"]
    assert state.stopped == StoppedByError(error="ProviderError", message="overloaded")
    assert (state.status, (await store.info("s")).lease_until) == ("failed", None)


async def test_a_tool_can_finish_the_run(store: Store) -> None:
    """The run stops after the turn, and its answer is what was given."""

    @tool
    async def submit(grade: int, context: ToolContext) -> str:
        """Hand in."""
        context.state.finish({"grade": grade})
        return "handed in"

    model = FakeModel([tool_call("submit", grade=5)])
    state = State(id="s", messages=[Message.user("Grade it")])

    assert await Agent(model, tools=[submit], store=store).run(state) == {"grade": 5}

    assert state.stopped == StoppedByFinish(answer={"grade": 5})
    assert (state.status, len(model.requests)) == ("finished", 1)
    await check_closed(store, state)


async def test_a_state_that_was_run_without_a_store_can_be_saved(store: Store) -> None:
    """Events that no store has are unsaved, however they came to be."""
    state = State(id="s", messages=[Message.user("Hello")])
    await Agent(FakeModel(["Hi"])).run(state)

    revision = await store.save(state)

    assert revision == state.revision
    assert (await store.load("s")).snapshot() == state.snapshot()


async def test_a_state_that_was_run_without_a_store_goes_on_with_one(store: Store) -> None:
    """All of it is saved by the first run that saves."""
    state = State(id="s", messages=[Message.user("Hello")])
    await Agent(FakeModel(["Hi"])).run(state)
    state.add_message(Message.user("And now?"))

    assert await Agent(FakeModel(["Now too"]), store=store).run(state) == "Now too"

    await check_closed(store, state)


@pytest.mark.parametrize(
    "prompt, error",
    [("", ConfigError), ("  ", ConfigError), (None, ConfigError), (3, ConfigError), (State(id="s"), ConfigError)],
)
async def test_a_prompt_that_says_nothing_is_refused(prompt: Any, error: type[Exception]) -> None:
    """Before anything is written or asked."""
    model, store = FakeModel(["never"]), MemoryStore()

    with pytest.raises(error):
        await Agent(model, store=store).run(prompt)

    assert (model.requests, await store.list()) == ([], [])


@pytest.mark.parametrize("id", ["", "a b", "ä", "x" * 129, "../up"])
async def test_an_id_that_no_state_can_have_is_refused(id: str) -> None:
    """Before anything is written or asked."""
    model, store = FakeModel(["never"]), MemoryStore()

    with pytest.raises(StateIdError):
        await Agent(model, store=store).run("Hello", id=id)

    assert (model.requests, await store.list()) == ([], [])


async def test_a_state_of_another_namespace_is_refused(store: Store) -> None:
    """A view of a store writes no State of another tenant."""
    model = FakeModel(["never"])
    state = State(id="s", namespace="b", messages=[Message.user("Hello")])

    with pytest.raises(ConfigError, match=r"store\.scoped\('b'\)"):
        await Agent(model, store=store.scoped("a")).run(state)

    assert model.requests == []


async def test_a_run_in_a_view_saves_in_its_namespace(store: Store) -> None:
    """A State that the Agent makes is of the store's tenant."""
    tenant = store.scoped("tenant-a")

    await Agent(FakeModel(["Hi"]), store=tenant).run("Hello", id="s")

    assert (await tenant.load("s")).answer == "Hi"
    assert not await store.exists("s")


async def test_a_reporter_gets_every_event_and_delta() -> None:
    """In the order in which they were saved."""
    items = Items()

    await Agent(FakeModel(["Good day"]), reporter=items, store=MemoryStore()).run("Hello")

    assert [item.kind for item in items.items] == [
        *["message_added", "run_started", "model_requested"],
        *["text", "text"],
        *["model_replied", "run_stopped"],
    ]


async def test_a_reporter_that_raises_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, since it is a fault of the program."""

    def broken(item: object) -> None:
        raise RuntimeError("no screen")

    assert await Agent(FakeModel(["Hi"]), reporter=broken).run("Hello") == "Hi"

    assert "the reporter failed" in caplog.text


def test_run_sync_and_resume_sync_are_for_scripts() -> None:
    """The same calls where no event loop runs."""
    agent = Agent(FakeModel(["Hi", "A joke"]), store=MemoryStore())

    assert agent.run_sync("Hello", id="s") == "Hi"
    assert agent.resume_sync("s", "Tell me a joke") == "A joke"


def test_what_a_run_raises_comes_out_of_run_sync() -> None:
    """As itself."""
    with pytest.raises(ProviderError, match="overloaded"):
        Agent(FakeModel([ProviderError("overloaded")])).run_sync("Hello")


async def test_sync_calls_inside_a_loop_name_the_call_to_await() -> None:
    """They would wait for the loop that they block."""
    model = FakeModel(["never"])
    agent = Agent(model, store=MemoryStore())

    with pytest.raises(SyncInsideLoopError, match=r"await agent\.run\(…\)"):
        agent.run_sync("Hello")
    with pytest.raises(SyncInsideLoopError, match=r"await agent\.resume\(…\)"):
        agent.resume_sync("s")

    assert model.requests == []


async def test_one_agent_serves_many_runs_at_once(store: Store) -> None:
    """Each with a State of its own."""

    def echo(request: Request) -> str:
        return request.messages[-1].text.upper()

    agent = Agent(FakeModel(echo), store=store)

    answers = await at_once(*[agent.run(f"word {n}", id=f"s{n}") for n in range(8)])

    assert answers == [f"WORD {n}" for n in range(8)]
    assert [(await store.load(f"s{n}")).messages[0].text for n in range(8)] == [f"word {n}" for n in range(8)]
