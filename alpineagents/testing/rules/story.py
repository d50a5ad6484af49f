"""
A history with the Events of many kinds and awkward values, that ends in the middle of a turn; and single such values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from alpineagents.messages import Image, Message, RawBlock, TextBlock, ToolCall
from alpineagents.patch import PatchOp
from alpineagents.state import State
from alpineagents.stopped import StoppedByCancel, WaitingForApproval
from alpineagents.usage import Usage

TEXTS = {
    "NUL": "a\0b",
    "lone surrogates": "a\ud800b\udfff",
    "astral": "\U0001f600\U0010ffff",
    "controls": "".join(map(chr, range(32))) + "\x7f\x85",
    "separators": "\u2028\u2029\ufeff\ufffe\uffff",
    "quotes": "'\"\\`$1 :name %s {x} ?",
    "combining": "e\u0301 \u00e9",
    "newlines and spaces": "  a\r\nb\rc\n ",
}

VALUES: dict[str, Any] = {
    "integers beyond 64 bits": [2**63, -(2**63) - 1, 10**30],
    "an integer of 4,299 digits": 10**4299 - 1,
    "integers that floats round": [2**53 + 1, -(2**53) - 1],
    "floats": [0.1, -0.0, 1e308, 5e-324, 1.0],
    "1, 1.0 and true": [1, 1.0, True],
    "awkward keys": {"": 1, "a.b": 2, "$ref": 3, "\0": 4, "\ud800": 5, "~/": 6, "__proto__": 7},
    "the order of keys": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "nothing, in many ways": [{}, [], "", None],
    "a date as a text": "2026-01-01T00:00:00Z",
    "nested JSON": {"list": [[], {}, [1, [2, [3, {"deep": [None]}]]]]},
}

AWKWARD = 'Grüezi \0 \ud800 \U0001f600 \u2028 "quoted" \\ \n'
JSON: dict[str, Any] = {"integer": 2**64 + 1, "float": 1.0, "null": None, "text": AWKWARD, "": {"~/": [[], {}, [1]]}}
USAGE = Usage(input_tokens=2**53 + 1, output_tokens=20, requests=1, cost_usd=0.1)

Step = tuple[str | None, type[Event], dict[str, Any]]


def _reply(*content: Any) -> Message:
    return Message(role="assistant", content=content)


def _call(id: str, **args: Any) -> ToolCall:
    return ToolCall(id=id, name="look", args=args)


_AGENT = AgentInfo(name="guide", model="m-1", system=AWKWARD, tools={"look": "sha256:aa"})

STEPS: list[Step] = [
    (None, MessageAdded, {"message": Message.user(AWKWARD, Image.from_bytes(b"\x89PNG\r\n\x1a\n", "image/png"))}),
    (None, DataChanged, {"patch": (PatchOp(op="add", path="/facts", value=JSON),)}),
    ("r1", RunStarted, {"agent": _AGENT}),
    ("r1", ModelRequested, {"model": "m-1"}),
    (
        "r1",
        ModelReplied,
        {"message": _reply(RawBlock(provider="p", data=JSON), _call("c1", **JSON), _call("c2")), "usage": USAGE},
    ),
    ("r1", ApprovalRequested, {"call_id": "c2", "digest": "ab" * 32, "question": AWKWARD}),
    ("r1", ToolStarted, {"call_id": "c1"}),
    (None, MessageAdded, {"message": Message.notice("It waits for the end of the turn.")}),
    ("r1", ToolFinished, {"call_id": "c1", "outcome": "ok", "content": (TextBlock(text=AWKWARD),)}),
    ("r1", RunStopped, {"stopped": WaitingForApproval(call_ids=("c2",))}),
    (None, ApprovalDecided, {"call_id": "c2", "approved": False, "by": "Heidi", "note": AWKWARD}),
    ("r2", RunStarted, {"agent": None}),
    ("r2", ToolFinished, {"call_id": "c2", "outcome": "denied"}),
    ("r2", ModelRequested, {"model": "m-1"}),
    ("r2", ModelFailed, {"outcome": "interrupted", "error": "OSError", "message": AWKWARD, "partial": "I th"}),
    ("r2", Asked, {"of": "model", "question": "How high?", "answer": JSON, "usage": USAGE}),
    (None, CancelRequested, {"by": "Peter", "reason": AWKWARD}),
    ("r2", RunStopped, {"stopped": StoppedByCancel(by="Peter")}),
    (None, ContextChanged, {"reason": "compact", "messages": (Message.notice("They looked."),), "extra_data": JSON}),
    (None, DataChanged, {"patch": (PatchOp(op="remove", path="/float"),)}),
    (None, MessageAdded, {"message": Message.user("Go on.")}),
    ("r3", RunStarted, {"agent": None}),
    ("r3", ModelRequested, {"model": "m-1"}),
    ("r3", ModelReplied, {"message": _reply(_call("c3"), _call("c4")), "usage": USAGE}),
    ("r3", ToolStarted, {"call_id": "c3"}),
    ("r3", ToolStarted, {"call_id": "c4"}),
    ("r3", Finished, {"answer": JSON}),
    ("r3", ToolFinished, {"call_id": "c4", "outcome": "error", "content": (TextBlock(text="too steep"),)}),
    (None, MessageAdded, {"message": Message.user("Hurry!")}),
]


def told(state: State) -> Iterator[State]:
    """Let the story happen to a State, and give it after each Event."""
    for run_id, kind, fields in STEPS:
        state.run_id = run_id
        state.record(kind, **fields)
        yield state
