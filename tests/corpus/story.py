"""A history in which every kind of Event happens, with every field filled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from alpineagents import State
from alpineagents.events import (
    AgentInfo,
    ApprovalDecided,
    ApprovalRequested,
    Asked,
    CancelRequested,
    ContextChanged,
    DataChanged,
    Event,
    Finished,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from alpineagents.messages import Image, Message, RawBlock, TextBlock, ToolCall, ToolResultBlock
from alpineagents.patch import PatchOp
from alpineagents.stopped import (
    StoppedByCancel,
    StoppedByError,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    WaitingForApproval,
)
from alpineagents.usage import Usage

Step = tuple[type[Event], str | None, dict[str, Any]]

AWKWARD = 'Grüezi \0 \ud800 \U0001f600 \u2028 "quoted" \\ \n'
PNG = Image.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png")
USAGE = Usage(
    input_tokens=2**63,
    output_tokens=20,
    cache_read_tokens=30,
    cache_write_tokens=40,
    reasoning_tokens=5,
    requests=1,
    cost_usd=0.1,
    unpriced_requests=1,
)
JSON: dict[str, Any] = {
    "integer": 2**64 + 1,
    "float": 1.0,
    "small": 5e-324,
    "minus": -0.0,
    "null": None,
    "true": True,
    "text": AWKWARD,
    "": {"~/": [[], {}, [1, [2, [3]]]]},
}


def call(call_id: str, **args: Any) -> ToolCall:
    return ToolCall(id=call_id, name="look", args=args)


def says(*content: Any) -> Message:
    blocks = (TextBlock(text=block) if isinstance(block, str) else block for block in content)
    return Message(role="assistant", content=tuple(blocks))


def steps() -> Iterator[Step]:
    """Give each Event of the story: its kind, its run, its fields."""
    one, two, three, four, five = (f"run-{name}" for name in ("one", "two", "three", "four", "five"))
    agent = AgentInfo(name="guide", model="m-1", system=AWKWARD, tools={"look": "sha256:aa", "climb": "sha256:bb"})
    yield MessageAdded, None, {"message": Message.user(AWKWARD, PNG)}
    yield DataChanged, None, {"patch": (PatchOp(op="add", path="/facts", value=JSON),)}
    # Parallel calls, one of which a person denies, and a message that waits for the end of the turn.
    yield RunStarted, one, {"agent": agent}
    yield ModelRequested, one, {"model": "m-1"}
    calls = (call("c1", **JSON), call("c2"), ToolCall(id="c3", name="climb", invalid_json='{"a":'))
    reply = says(RawBlock(provider="p", data={"thinking": JSON}), TextBlock(text="I look."), *calls)
    yield (
        ModelReplied,
        one,
        {"message": reply, "usage": USAGE, "stop_reason": "tool_use", "model": "m-1-2026"},
    )
    yield (
        ApprovalRequested,
        one,
        {"call_id": "c2", "digest": "ab" * 32, "question": "Really?", "expires_at": datetime(2027, 1, 1, tzinfo=UTC)},
    )
    yield ToolStarted, one, {"call_id": "c1", "attempt": 1}
    yield ToolFinished, one, {"call_id": "c3", "outcome": "input_error", "content": (TextBlock(text="not JSON"),)}
    yield MessageAdded, None, {"message": Message.notice("The hut closes at six.")}
    yield ToolFinished, one, {"call_id": "c1", "outcome": "ok", "content": (TextBlock(text=AWKWARD), PNG)}
    yield RunStopped, one, {"stopped": WaitingForApproval(call_ids=("c2",))}
    yield ApprovalDecided, None, {"call_id": "c2", "digest": "ab" * 32, "approved": False, "by": "Heidi", "note": "no"}
    # A process that died: the tool of the next turn was started twice.
    yield RunStarted, two, {"agent": None}
    yield ToolFinished, two, {"call_id": "c2", "outcome": "denied", "content": (TextBlock(text="Heidi said no"),)}
    yield ModelRequested, two, {"model": "m-1"}
    yield (
        ModelFailed,
        two,
        {"outcome": "interrupted", "error": "OSError", "message": AWKWARD, "partial": "I th", "usage": USAGE},
    )
    yield ModelRequested, two, {"model": "m-1"}
    yield ModelReplied, two, {"message": says(call("c4")), "usage": USAGE}
    yield ToolStarted, two, {"call_id": "c4", "attempt": 1}
    yield RunStarted, three, {"agent": agent.model_copy(update={"model": "m-2"})}
    yield ToolStarted, three, {"call_id": "c4", "attempt": 2}
    yield ToolFinished, three, {"call_id": "c4", "outcome": "unknown"}
    yield Asked, three, {"of": "model", "question": "How high?", "answer": JSON, "usage": USAGE}
    yield Asked, three, {"of": "human", "question": "Which hut?", "answer": "the upper one"}
    yield CancelRequested, None, {"by": "Peter", "reason": AWKWARD}
    yield RunStopped, three, {"stopped": StoppedByCancel(by="Peter")}
    # The context is replaced, and the extra data with it.
    yield (
        ContextChanged,
        None,
        {
            "reason": "compact",
            "messages": (Message.notice("They looked."), says(call("c5")), result("c5"), says("It is steep.")),
            "extra_data": {"facts": JSON, "log": [1]},
            "usage": USAGE,
        },
    )
    yield (
        DataChanged,
        None,
        {
            "patch": (
                PatchOp(op="add", path="/log/-", value=2),
                PatchOp(op="replace", path="/log/0", value={"a/b~": 1}),
                PatchOp(op="remove", path="/facts"),
            )
        },
    )
    # Replies and results that another program brings.
    yield MessageAdded, None, {"message": says(TextBlock(text="As before:"), call("c6"))}
    yield MessageAdded, None, {"message": result("c6", TextBlock(text="brought"))}
    for run, stopped in (
        ("run-until", StoppedByUntil(name="waiting_for_user")),
        ("run-limit", StoppedByLimit(turns=3)),
        ("run-error", StoppedByError(error="ValueError", message=AWKWARD)),
        ("run-permission", StoppedByPermission(call=call("c7"), reason="never")),
    ):
        yield RunStarted, run, {"agent": None}
        yield RunStopped, run, {"stopped": stopped}
    yield MessageAdded, None, {"message": Message.user("Go on.")}
    yield RunStarted, four, {"agent": None}
    yield ModelRequested, four, {"model": "m-2"}
    yield ModelReplied, four, {"message": says(TextBlock(text="Done."), call("c8")), "usage": USAGE}
    yield ToolStarted, four, {"call_id": "c8"}
    yield Finished, four, {"answer": JSON}
    yield ToolFinished, four, {"call_id": "c8", "outcome": "ok", "content": ()}
    yield RunStopped, four, {"stopped": StoppedByFinish(answer=JSON)}
    # It ends in mid-turn, in the middle of a request.
    yield MessageAdded, None, {"message": Message.user("And now?")}
    yield RunStarted, five, {"agent": None}
    yield ModelRequested, five, {"model": "m-2"}
    yield ModelReplied, five, {"message": says(call("c9"), call("c10")), "usage": USAGE}
    yield ToolStarted, five, {"call_id": "c10"}
    yield ToolFinished, five, {"call_id": "c10", "outcome": "error", "content": (TextBlock(text="too steep"),)}
    yield MessageAdded, None, {"message": Message.user("Hurry!")}


def result(call_id: str, *content: Any) -> Message:
    return Message(role="user", content=(ToolResultBlock(call_id=call_id, content=content),))


def told(state: State) -> Iterator[State]:
    """Let the story happen to a State, and give it after each Event."""
    for kind, run_id, fields in steps():
        state.run_id = run_id
        state.record(kind, **fields)
        yield state
