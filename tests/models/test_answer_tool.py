"""A shaped answer as a tool that the model must call."""

from __future__ import annotations

from contextlib import aclosing

from pydantic import BaseModel

from alpineagents import Agent, State, tool
from alpineagents.messages import Message, OutputSpec, RawBlock, Reply, Request, TextBlock, ToolCall, ToolSpec
from alpineagents.models.answer_tool import answered, with_answer_tool
from tests.models.asking import model_at
from tests.models.conftest import Serve
from tests.servers.openai_server import calls, says

SPEC = OutputSpec(name="peak", json_schema={"type": "object"})
ANSWER = ToolCall(id="a", name="final_answer", args={"metres": 4478})
THOUGHT = RawBlock(provider="p", data={"reasoning": "Hm."})


class Peak(BaseModel):
    """A mountain."""

    metres: int


@tool
def look() -> str:
    """Look."""
    return "fog"


def reply(*blocks: TextBlock | ToolCall | RawBlock) -> Reply:
    """Return a reply with calls."""
    return Reply(message=Message(role="assistant", content=blocks), stop_reason="tool_use")


def test_its_name_is_no_other_tool_s() -> None:
    """A tool of the user's keeps its name."""
    own = ToolSpec(name="final_answer", description="Mine.", parameters={"type": "object"})

    request, name = with_answer_tool(Request(messages=(), tools=(own,), output=SPEC))

    assert [spec.name for spec in request.tools] == ["final_answer", name] == ["final_answer", "final_answer_"]
    assert request.output is None


def test_the_answer_stands_in_the_place_of_the_call() -> None:
    """Reasoning stays, and what was said around the call goes."""
    told = answered(reply(THOUGHT, TextBlock(text="Here it is."), ANSWER), "final_answer")

    assert told.message.content == (THOUGHT, TextBlock(text='{"metres": 4478}'))
    assert told.stop_reason == "end_turn"


def test_other_calls_are_made_before_the_answer() -> None:
    """An answer that was given before its facts were known is left out, and asked for again."""
    other = ToolCall(id="b", name="look")

    told = answered(reply(ANSWER, other), "final_answer")

    assert (told.message.content, told.stop_reason) == ((other,), "tool_use")


def test_an_answer_that_is_no_json_is_a_text_for_the_caller_to_refuse() -> None:
    """As it was written, so that the model can be told."""
    told = answered(reply(ToolCall(id="a", name="final_answer", invalid_json='{"met')), "final_answer")

    assert told.message.text == '{"met'


async def test_a_run_gets_its_value_through_the_tool(serve: Serve) -> None:
    """Tools are called first; a wrong answer is corrected; the State knows nothing of the tool."""
    server = serve(
        calls(("look", {})),
        calls(("final_answer", {"metres": "high"})),
        says("Sorry."),
        calls(("final_answer", {"metres": 4478})),
    )
    state = State(messages=[Message.user("How high?")])

    async with aclosing(Agent(model_at(server, output_mode="tool"), tools=[look], output=Peak)) as agent:
        answer = await agent.run(state)

    assert answer == Peak(metres=4478)
    assert [body["tool_choice"] for body in server.bodies] == ["required"] * 4
    assert [call.name for message in state.messages for call in message.tool_calls] == ["look"]
    assert "should be a valid integer" in server.bodies[2]["messages"][-1]["content"]
