"""
A shaped answer from a model whose server has no mode for schemas: as a tool that the model must call.

The caller sees nothing of the tool: the call's arguments become the text of the reply.
"""

from __future__ import annotations

import json

from alpineagents.messages import Reply, Request, TextBlock, ToolCall, ToolSpec


def with_answer_tool(request: Request) -> tuple[Request, str]:
    """
    Return a request with a tool in the place of its output, and the name of the tool.

    Example:
        >>> from alpineagents.messages import Message, OutputSpec
        >>> spec = OutputSpec(name="peak", json_schema={"type": "object"})
        >>> with_answer_tool(Request(messages=(Message.user("Which?"),), output=spec))[0].tools[0].name
        'final_answer'
    """
    assert request.output is not None
    name, taken = "final_answer", {tool.name for tool in request.tools}
    while name in taken:
        name += "_"
    description = f"Give the final answer, of the shape {request.output.name}. Call it once nothing else is to be done."
    tool = ToolSpec(name=name, description=description, parameters=request.output.json_schema)
    return request.model_copy(update={"tools": (*request.tools, tool), "output": None}), name


def answered(reply: Reply, name: str) -> Reply:
    """Return the reply with the answer as its text. Other calls beside it are made first, so it is asked for again."""
    calls = reply.message.tool_calls
    answers = [call for call in calls if call.name == name]
    if not answers:
        return reply
    content = [block for block in reply.message.content if block not in answers]
    stop_reason = reply.stop_reason
    if len(answers) == len(calls):
        # In the place of what was said around it, which is no part of the answer.
        content = [block for block in content if not isinstance(block, TextBlock)]
        content.append(TextBlock(text=_written(answers[0])))
        stop_reason = "end_turn" if stop_reason == "tool_use" else stop_reason
    message = reply.message.model_copy(update={"content": tuple(content)})
    return reply.model_copy(update={"message": message, "stop_reason": stop_reason})


def _written(call: ToolCall) -> str:
    return json.dumps(call.args, ensure_ascii=False) if call.invalid_json is None else call.invalid_json
