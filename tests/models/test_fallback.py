"""Several models, each for when the ones before it are down."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import httpx
import pytest

from alpineagents import (
    Agent,
    Asked,
    ConfigError,
    ContextChanged,
    FallbackModel,
    MemoryStore,
    Model,
    OpenAICompatible,
    Reply,
    Request,
    State,
    tool,
)
from alpineagents.errors import AuthError, ContextTooLongError, ModelError, ProviderError, RateLimitError
from alpineagents.messages import Message
from alpineagents.testing import FakeModel
from tests.models.asking import HELLO, model_at
from tests.models.conftest import Serve
from tests.servers.openai_server import Answer, Step, begins, calls, chunk, context_too_long, says, status, stream


class Closing:
    """A model that notes that it was closed, and may fail at that."""

    name = "closing"

    def __init__(self, error: Exception | None = None) -> None:
        self.closed, self._error = False, error

    async def respond(self, request: Request, *, emit: Any = None) -> Reply:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True
        if self._error is not None:
            raise self._error


def test_it_is_a_model() -> None:
    """It stands wherever a Model can, and its name has those of its models."""
    model = FallbackModel([FakeModel([], name="a"), "ollama/llama3.2"])

    assert isinstance(model, Model)
    assert model.name == "a | ollama/llama3.2"
    assert repr(model).startswith("FallbackModel([<FakeModel 'a' requests=0")


@pytest.mark.parametrize("models", [[], "gpt-5", [None], None])
def test_it_needs_models(models: Any) -> None:
    """Nothing, a bare name and what is no model are refused with the line to write."""
    with pytest.raises(ConfigError, match="FallbackModel\\(\\["):
        FallbackModel(models)


@pytest.mark.parametrize(
    "failing",
    [status(429), status(429, code="insufficient_quota"), status(500), status(529), begins(), Answer((Step.DROP,))],
)
async def test_the_next_model_is_asked_where_one_is_down(serve: Serve, failing: Answer) -> None:
    """What may pass leads to the next model, whose reply says who it is."""
    up = serve(says("Hi"))
    model = FallbackModel([model_at(serve(failing)), model_at(up)])
    shown: list[Any] = []

    reply = await model.respond(HELLO, emit=shown.append)
    await model.aclose()

    assert (reply.message.text, reply.model) == ("Hi", "test-model-2025")
    assert [item.kind for item in shown] == ["fallback", "text"]
    assert shown[0].model == "test"
    assert len(up.requests) == 1


@pytest.mark.parametrize(
    "failing, kind",
    [
        (status(401), AuthError),
        (status(400), ProviderError),
        (status(404), ProviderError),
        (context_too_long(), ContextTooLongError),
        (begins("The sum"), ProviderError),
        (stream(chunk({"reasoning": "Hm."}), done=False), ProviderError),
    ],
)
async def test_the_next_model_is_not_asked_for_what_is_to_be_mended(
    serve: Serve, failing: Answer, kind: type[ModelError]
) -> None:
    """A wrong key or request is raised, and a reply that was begun is not begun by another."""
    up = serve(says("Hi"))
    model = FallbackModel([model_at(serve(failing)), model_at(up)])

    with pytest.raises(kind):
        await model.respond(HELLO, emit=lambda item: None)
    await model.aclose()

    assert up.requests == []


async def test_what_is_no_model_error_is_raised() -> None:
    """A mistake in a model's code is no reason to ask another."""
    other = FakeModel(["never"])

    with pytest.raises(ZeroDivisionError):
        await FallbackModel([FakeModel([ZeroDivisionError()]), other]).respond(HELLO)

    assert other.requests == []


async def test_the_last_error_names_the_ones_before_it() -> None:
    """If all fail, the last error is raised, and its notes tell of the others."""
    model = FallbackModel([FakeModel([ProviderError("no power")], name="a"), FakeModel([RateLimitError("slow")])])

    with pytest.raises(RateLimitError, match="slow") as raised:
        await model.respond(HELLO)

    assert raised.value.__notes__ == ["before it, 'a' failed: no power"]


async def test_the_history_has_who_replied_and_who_failed() -> None:
    """Both are found by the names of the Models, whatever the servers call themselves; a nested choice names all."""
    down = [FakeModel([ProviderError("no power")], name="a"), FakeModel([RateLimitError("slow")], name="b")]
    model = FallbackModel([FallbackModel(down), FakeModel(["Hi"], name="c")])
    state = State(messages=[Message.user("Hello")])

    await Agent(model).run(state)

    (replied,) = [event for event in state.history if event.kind == "model_replied"]
    assert replied.by == "c"
    assert [(failed.name, failed.error, failed.message) for failed in replied.failures] == [
        ("a", "ProviderError", "no power"),
        ("a | b", "RateLimitError", "slow"),
    ]


async def test_the_history_has_who_failed_where_all_do() -> None:
    """Without a reply, the failure names the Model that was asked last and the ones before it."""
    down = [FakeModel([ProviderError("no power")], name="a"), FakeModel([ProviderError("no wire")], name="b")]
    state = State(messages=[Message.user("Hello")])

    with pytest.raises(ProviderError):
        await Agent(FallbackModel(down)).run(state)

    (failed,) = [event for event in state.history if event.kind == "model_failed"]
    assert (failed.by, failed.message) == ("b", "no wire")
    assert [earlier.name for earlier in failed.failures] == ["a"]


async def test_one_model_alone_leaves_no_trace_of_a_choice() -> None:
    """Events of an ordinary Model are stored as before, without fields about others."""
    state = State(messages=[Message.user("Hello")])

    await Agent(FakeModel(["Hi"])).run(state)

    (replied,) = [event for event in state.history if event.kind == "model_replied"]
    assert not {"by", "failures"} & replied.model_dump().keys()


async def test_all_attempts_are_counted_once(serve: Serve) -> None:
    """Failed attempts of each model, its retries and the reply are in the sum."""
    first = model_at(serve(status(500), begins()), max_retries=1)
    second = model_at(serve(status(500), says("Hi")), max_retries=1)
    state = State(messages=[Message.user("Hello")])

    async with aclosing(Agent(FallbackModel([first, second]))) as agent:
        await agent.run(state)

    # Refused, broken off, refused, and the reply, whose price is not known.
    assert (state.usage.requests, state.usage.unpriced_requests) == (4, 2)


async def test_all_attempts_are_counted_once_when_all_fail(serve: Serve) -> None:
    """The same where there is no reply in the end."""
    first = model_at(serve(status(500), begins()), max_retries=1)
    second = model_at(serve(begins(), status(500)), max_retries=1)
    state = State(messages=[Message.user("Hello")])

    async with aclosing(Agent(FallbackModel([first, second]))) as agent:
        with pytest.raises(ProviderError):
            await agent.run(state)

    assert (state.usage.requests, state.usage.unpriced_requests) == (4, 2)


async def test_closing_closes_all() -> None:
    """Also where one of them fails to close, which is raised then."""
    models = [Closing(), Closing(OSError("stuck")), Closing()]

    with pytest.raises(OSError, match="stuck"):
        await FallbackModel(models).aclose()

    assert [model.closed for model in models] == [True, True, True]


@tool
def look() -> str:
    """Look."""
    return "fog"


async def test_a_state_goes_on_at_another_provider(serve: Serve) -> None:
    """In the middle of a turn with calls, the next provider gets the conversation without the first one's reasoning."""
    wants = calls(("look", {}))
    thinks = Answer((stream(chunk({"reasoning": "Hm."}), done=False).steps[0], *wants.steps))
    first, second = serve(thinks, status(500)), serve(says("Fog."))
    store = MemoryStore()
    model = FallbackModel([model_at(first), OpenAICompatible("other", base_url=second.base_url, max_retries=0)])

    answer = await Agent(model, tools=[look], store=store).run("What is there?", id="s")
    await model.aclose()

    assert answer == "Fog."
    asked, told = (server.bodies[-1]["messages"][1] for server in (first, second))
    assert asked["reasoning"] == "Hm."
    assert told == {name: value for name, value in asked.items() if name != "reasoning"}
    replies = [event for event in (await store.load("s")).history if event.kind == "model_replied"]
    assert [event.model for event in replies] == ["test-model-2025"] * 2


@pytest.mark.parametrize("windows, holds", [((100, 50), 50), ((100, None), None), ((None,), None), ((7,), 7)])
def test_the_window_is_that_of_the_smallest_model(windows: tuple[int | None, ...], holds: int | None) -> None:
    """Any of them may have to read the context; where one does not tell, it is not known."""
    model = FallbackModel([FakeModel([], context_tokens=window) for window in windows])

    assert model.context_tokens == holds


async def test_its_models_use_one_pool_of_connections(serve: Serve) -> None:
    """Two names at one server need one connection, which is closed with the whole."""
    server = serve(status(500), says("Here I am"))
    model = FallbackModel([model_at(server), model_at(server)])

    reply = await model.respond(HELLO)
    await model.aclose()

    assert reply.message.text == "Here I am"
    assert server.connections == 1


async def test_a_client_of_the_callers_own_is_not_shared(serve: Serve) -> None:
    """It was given for one model, with the certificates or the proxy for that one."""
    server = serve(status(500), says("Here I am"))
    async with httpx.AsyncClient() as client:
        model = FallbackModel([model_at(server, http_client=client), model_at(server)])
        await model.respond(HELLO)
        await model.aclose()

        assert not client.is_closed
    assert server.connections == 2


async def test_a_question_and_a_summary_say_who_failed_before() -> None:
    """As a reply does: what was asked beside the conversation is in the history too."""
    near = FakeModel([ProviderError("down")] * 3, name="near")
    far = FakeModel(["Hi", "4,478 m", "They talked."], name="far")
    agent = Agent(FallbackModel([near, far]))
    state = State(messages=[Message.user("Hello")])
    await agent.run(state)

    await agent.ask(state, "How high?")
    await agent.compact(state, keep=0)

    told = [event for event in state.history if isinstance(event, (Asked, ContextChanged))]
    assert [(event.by, [failed.name for failed in event.failures]) for event in told] == [("far", ["near"])] * 2
    assert all(event.failures[0].message == "down" for event in told)
