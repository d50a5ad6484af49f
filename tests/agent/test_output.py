"""Answers of a shape, in the conversation and beside it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from alpineagents import (
    Agent,
    ConfigError,
    EventOrderError,
    Message,
    OpenAICompatible,
    OutputError,
    RateLimitError,
    Reply,
    State,
    StoppedByFinish,
    Store,
    ToolContext,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.output import Shape
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, kinds
from tests.servers.openai_server import OpenAIServer, says, status


class Peak(BaseModel):
    """A mountain."""

    name: str
    metres: Annotated[int, Field(gt=0, alias="height")]


GOOD = '{"name": "Matterhorn", "height": 4478}'
MATTERHORN = Peak(name="Matterhorn", height=4478)
STORED = {"name": "Matterhorn", "height": 4478}


@tool
def look() -> str:
    """Look."""
    return "fog"


# ------------------------------------------------------------------------------------------------ Agent(output=…)


async def test_a_run_gives_back_a_value_of_the_type(store: Store) -> None:
    """The run returns the instance, the State keeps its JSON, and the model was told the schema."""
    model = FakeModel([GOOD])

    answer = await Agent(model, output=Peak, store=store).run("Which peak?", id="s")

    assert answer == MATTERHORN
    loaded = await store.load("s")
    assert (loaded.answer, loaded.status, loaded.stopped) == (STORED, "finished", StoppedByFinish(answer=STORED))
    spec = model.requests[0].output
    assert spec is not None
    assert (spec.name, spec.json_schema["required"]) == ("Peak", ["name", "height"])
    assert spec.json_schema["additionalProperties"] is False


async def test_a_wrong_answer_is_sent_back(store: Store) -> None:
    """The model reads what was wrong and the schema, and mends it; all of it is in the history."""
    model = FakeModel(["It is the Matterhorn.", '{"name": "Matterhorn", "height": -1}', GOOD])

    answer = await Agent(model, output=Peak, store=store).run("Which peak?", id="s")

    assert answer == MATTERHORN
    first, second = (request.messages[-1] for request in model.requests[1:])
    assert first.is_notice
    assert "not JSON" in first.text
    assert '"required": ["name", "height"]' in first.text
    assert "- height should be greater than 0, got -1" in second.text
    assert kinds(await store.load("s"))[-3:] == ["model_replied", "finished", "run_stopped"]


async def test_corrections_are_bounded(store: Store) -> None:
    """After three, the run fails with the last words."""
    state = State(id="s", messages=[Message.user("Which peak?")])
    model = FakeModel(["one", "two", "three", "four", "never"])

    with pytest.raises(OutputError) as raised:
        await Agent(model, output=Peak, store=store).run(state)

    assert (raised.value.text, model.remaining) == ("four", 1)
    assert state.status == "failed"
    await check_closed(store, state)


@pytest.mark.parametrize("stop_reason", ["refusal", "max_tokens"])
@pytest.mark.parametrize("beside", [False, True])
async def test_a_refused_or_cut_answer_is_not_asked_for_again(stop_reason: str, beside: bool) -> None:
    """Corrections cost, and would end the same way: the error says at once how the reply ended."""
    reply = Reply(message=Message(role="assistant", content='{"name": "Matt'), stop_reason=stop_reason)
    model = FakeModel([reply, "never"])
    state = State(messages=[Message.user("Which peak?")])

    with pytest.raises(OutputError, match=f"stop_reason '{stop_reason}'") as raised:
        if beside:
            await Agent(model).ask(state, "Which peak?", returns=Peak)
        else:
            await Agent(model, output=Peak).run(state)

    assert (raised.value.text, model.remaining) == ('{"name": "Matt', 1)


async def test_a_whole_answer_is_taken_whatever_ended_the_reply() -> None:
    """A value that was complete at the last token is a value."""
    reply = Reply(message=Message(role="assistant", content=GOOD), stop_reason="max_tokens")

    assert await Agent(FakeModel([reply]), output=Peak).run("Which peak?") == MATTERHORN


async def test_calls_are_made_before_the_answer(store: Store) -> None:
    """A reply with calls is no answer yet, also in the middle of corrections."""
    model = FakeModel([["I look.", tool_call("look")], "Hm.", tool_call("look"), GOOD])

    assert await Agent(model, tools=[look], output=Peak, store=store).run("Which peak?") == MATTERHORN


async def test_an_answer_that_a_dead_run_left_unread_is_read(store: Store) -> None:
    """Whoever resumes checks the words that stand there, and has them corrected."""
    await Agent(FakeModel(["The Matterhorn."]), store=store).run("Which peak?", id="s")
    model = FakeModel([GOOD])

    answer = await Agent(model, output=Peak, store=store).resume("s")

    assert answer == MATTERHORN
    assert "not JSON" in model.requests[0].messages[-1].text


async def test_a_finished_state_goes_on_with_the_next_question(store: Store) -> None:
    """Each question gets its own value."""
    agent = Agent(FakeModel([GOOD, GOOD.replace("Matterhorn", "Eiger")]), output=Peak, store=store)

    first = await agent.run("Which peak?", id="s")
    second = await agent.resume("s", "And another?")

    assert (first.name, second.name) == ("Matterhorn", "Eiger")


async def test_what_a_tool_finishes_with_has_to_fit_too(store: Store) -> None:
    """The run says so, since no model can mend it."""

    @tool
    def give_up(context: ToolContext) -> str:
        """Give up."""
        context.state.finish("nothing")
        return "done"

    agent = Agent(FakeModel([tool_call("give_up"), "never"]), tools=[give_up], output=Peak, store=store)

    with pytest.raises(OutputError, match="shape"):
        await agent.run("Which peak?")


async def test_a_run_without_an_answer_gives_none() -> None:
    """A run that waits for an approval has nothing to read."""

    @tool(needs_approval=True)
    def climb() -> str:
        """Climb."""
        return "up"

    assert await Agent(FakeModel([tool_call("climb")]), tools=[climb], output=Peak).run("Up!") is None


def test_what_cannot_be_an_output_is_refused() -> None:
    """A type that pydantic cannot describe is refused where the Agent is built, with an example."""
    for wrong in (object(), 5, type("Plain", (), {})):
        with pytest.raises(ConfigError, match="class Peak"):
            Agent(FakeModel([]), output=wrong)


def test_a_copy_keeps_the_output() -> None:
    """As any setting."""
    assert Agent(FakeModel([]), output=Peak).copy(name="guide").output is Peak


async def test_a_value_that_cannot_be_kept_is_a_wrong_answer() -> None:
    """JSON may hold a number that no JSON writer gives back; the model is told so."""
    model = FakeModel(['{"value": 1e999}', '{"value": 1.5}'])

    assert await Agent(model, output=float).run("How high?") == 1.5
    assert "inf" in model.requests[1].messages[-1].text


async def test_the_schema_goes_to_a_provider() -> None:
    """Through a real Model, as the field that the format has for it."""
    with OpenAIServer(says(GOOD)) as server:
        agent = Agent(OpenAICompatible("test", base_url=server.base_url), output=Peak)
        answer = await agent.run("Which peak?")
        await agent.aclose()

    assert answer == MATTERHORN
    assert server.bodies[0]["response_format"]["json_schema"]["name"] == "Peak"
    assert server.bodies[0]["response_format"]["json_schema"]["strict"] is True


# ------------------------------------------------------------------------------------------------ ask


async def test_a_question_stays_out_of_the_context(store: Store) -> None:
    """The model knows the conversation; the question, its answer and what it took are one Event."""
    model = FakeModel(["Good day.", GOOD])
    agent = Agent(model, store=store)
    state = State(id="s", messages=[Message.user("Hello")])
    await agent.run(state)
    before = list(state.messages)

    answer = await agent.ask(state, "Which peak?", returns=Peak)

    assert answer == MATTERHORN
    assert list(state.messages) == before
    assert [message.text for message in model.requests[1].messages] == ["Hello", "Good day.", "Which peak?"]
    (asked,) = [event for event in (await store.load("s")).history if event.kind == "asked"]
    assert (asked.of, asked.question, asked.answer, asked.usage.requests) == ("model", "Which peak?", STORED, 1)
    assert state.usage.requests == 2
    await check_closed(store, state)


async def test_a_question_may_have_a_text_as_answer() -> None:
    """Without `returns` the answer is what the model says."""
    state = State(messages=[Message.user("Hello")])

    assert await Agent(FakeModel(["A peak."])).ask(state, "What is it about?") == "A peak."


async def test_a_wrong_answer_to_a_question_is_sent_back() -> None:
    """Beside the conversation too, bounded, and all requests are counted."""
    state = State(messages=[Message.user("Hello")])
    model = FakeModel(["Hm.", tool_call("look"), GOOD, *["no"] * 5])
    agent = Agent(model, tools=[look])

    assert await agent.ask(state, "Which peak?", returns=Peak) == MATTERHORN
    with pytest.raises(OutputError) as raised:
        await agent.ask(state, "Which peak?", returns=Peak)

    assert (raised.value.text, model.remaining) == ("no", 1)
    assert "without" not in model.requests[1].messages[-1].text
    assert "No tool can be called" in model.requests[2].messages[-1].text
    assert state.usage.requests == 7
    assert [event.answer for event in state.history if event.kind == "asked"] == [STORED, None]


async def test_a_question_that_fails_is_counted() -> None:
    """What the failed request took is in the sum, and the error comes out."""
    state = State(messages=[Message.user("Hello")])

    with pytest.raises(RateLimitError):
        await Agent(FakeModel(["Hm.", RateLimitError("slow")])).ask(state, "Which peak?", returns=Peak)

    assert (state.usage.requests, state.usage.unpriced_requests) == (2, 1)


async def test_a_question_while_calls_are_open_is_refused() -> None:
    """No provider takes a call without its result."""
    state = State(messages=[Message.user("Hello")])
    agent = Agent(FakeModel([tool_call("look"), "never"]), tools=[look])
    await agent.think(state)

    with pytest.raises(EventOrderError, match="use_tools"):
        await agent.ask(state, "Which peak?")


async def test_what_a_model_says_beside_is_not_streamed() -> None:
    """A reader of a run sees the conversation, and the Event of the question."""

    @loop(until=waiting_for_user, limit=3)
    async def asking(agent: Agent, state: State) -> None:
        await agent.ask(state, "Is it hard?", returns=bool)
        await agent.think(state)

    async with Agent(FakeModel(['{"value": true}', "Yes."]), loop=asking).stream("Hello") as items:
        seen = [item async for item in items]

    assert [item.kind for item in seen][2:] == ["asked", "model_requested", "text", "model_replied", "run_stopped"]
    assert [item.answer for item in seen if item.kind == "asked"] == [True]


async def test_a_retry_of_a_question_is_shown() -> None:
    """A reader sees why a run waits, also where the words are not for him."""
    shown: list[Any] = []
    with OpenAIServer(status(503, headers={"Retry-After": "0"}), says("Yes.")) as server:
        model = OpenAICompatible("test", base_url=server.base_url)
        agent = Agent(model, reporter=shown.append)
        state = State(messages=[Message.user("Hello")])
        answer = await agent.ask(state, "Is it hard?")
        await agent.aclose()

    assert answer == "Yes."
    assert [item.kind for item in shown] == ["message_added", "run_started", "retry", "asked", "run_stopped"]
    assert state.usage.requests == 2


# ------------------------------------------------------------------------------------------------ shapes


@dataclasses.dataclass
class Point:
    """A place."""

    x: float
    y: float = 0.0


class Tree(BaseModel):
    """A tree of trees."""

    name: str
    children: list[Tree] = []


@pytest.mark.parametrize(
    "kind, text, value",
    [
        (Peak, GOOD, MATTERHORN),
        (Peak, f"```json\n{GOOD}\n```", MATTERHORN),
        (Point, '{"x": 1.5}', Point(1.5)),
        (Tree, '{"name": "a", "children": [{"name": "b"}]}', Tree(name="a", children=[Tree(name="b")])),
        (int, '{"value": 3}', 3),
        (int, "3", 3),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (set[int], '{"value": [1, 2]}', {1, 2}),
        (dict[str, int], '{"value": {"a": 1}}', {"a": 1}),
        (dict[str, int], '{"a": 1, "value": 2}', {"a": 1, "value": 2}),
        (int | None, '{"value": null}', None),
    ],
)
def test_a_value_is_read_and_kept(kind: Any, text: str, value: Any) -> None:
    """What is no object is wrapped in one; what is kept comes back as it was."""
    shape = Shape(kind)

    assert shape.read(text) == value
    assert shape.restored(shape.stored(value)) == value
    assert shape.spec.json_schema["type"] == "object"
    assert shape.spec.name.replace("_", "").isalnum()


@pytest.mark.parametrize("text", ["", "Hm.", "{", "[1]", "null", '{"value": "x"}', '{"value": NaN}', "[" * 100_000])
def test_what_is_no_value_is_refused(text: str) -> None:
    """Whatever a model writes, the error is one, and holds its words."""
    with pytest.raises(OutputError) as refused:
        Shape(float).read(text)

    assert refused.value.text == text
    assert len(str(refused.value)) < 2_500
