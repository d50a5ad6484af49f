"""Strategies for the values that a State holds, and for an Event of every kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

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

OUTCOMES = ("ok", "error", "input_error", "denied", "cancelled", "interrupted", "unknown")


def joined(text: str) -> str:
    """Make one character of each surrogate pair: two halves beside each other are one to every JSON reader."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


awkward = '\0\ud800\udfff\U0001f600\U0010ffffé"\\/~\n\r\t\u2028\x1f\x7fa0-'
"""Characters that a database, an encoding, a JSON reader or a JSON Pointer has trouble with."""

texts = st.one_of(
    st.text(max_size=10),
    st.text(st.characters(exclude_categories=()), max_size=10),
    st.text(st.sampled_from(awkward), max_size=10),
).map(joined)

names = st.text(min_size=1, max_size=8)
"""Texts that the library or the developer chooses: models, providers, runs."""

integers = st.one_of(
    st.integers(-10, 10),
    st.integers(),
    st.sampled_from([2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**4298, -(10**4298)]),
)

floats = st.floats(allow_nan=False, allow_infinity=False)

json_values = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

json_objects = st.dictionaries(texts, json_values, max_size=4)

counts = st.integers(0, 2**70)

usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
    requests=counts,
    cost_usd=st.floats(0, 1e300),
    unpriced_requests=counts,
)

instants = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001  # the strategy adds the zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001  # the strategy adds the zone
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-11, minutes=-30))]),
)

text_blocks = st.builds(TextBlock, text=texts)
images = st.builds(Image.from_bytes, st.binary(max_size=9), st.sampled_from(["image/png", "image/webp"]))
raw_blocks = st.builds(RawBlock, provider=names, data=json_values)
call_ids = texts.filter(bool)
calls = st.builds(ToolCall, id=call_ids, name=texts, args=json_objects, invalid_json=st.none() | texts)
result_contents = st.lists(text_blocks | images, max_size=3).map(tuple)
results = st.builds(ToolResultBlock, call_id=call_ids, content=result_contents, outcome=st.sampled_from(OUTCOMES))
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant"]),
    content=st.lists(text_blocks | images | raw_blocks | calls | results, max_size=4).map(tuple),
    is_notice=st.booleans(),
    late_call=st.just("") | call_ids,
)
agents = st.builds(
    AgentInfo,
    name=st.none() | names,
    model=names,
    system=st.none() | texts,
    tools=st.dictionaries(names, names, max_size=3),
)
stops = st.one_of(
    st.builds(StoppedByUntil, name=names),
    st.builds(StoppedByLimit, turns=st.integers()),
    st.builds(StoppedByFinish, answer=json_values),
    st.builds(StoppedByPermission, call=calls, reason=texts),
    st.builds(StoppedByCancel, by=texts),
    st.builds(StoppedByError, error=names, message=texts),
    st.builds(WaitingForApproval, call_ids=st.lists(names, max_size=3).map(tuple)),
)
patch_ops = st.builds(PatchOp, op=st.sampled_from(["add", "remove", "replace"]), path=texts, value=json_values)

_columns = {"revision": st.integers(1, 2**63 - 1), "at": instants, "run_id": st.none() | names}

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(RunStarted, agent=st.none() | agents, fork=texts, **_columns),
    st.builds(MessageAdded, message=messages, **_columns),
    st.builds(ModelRequested, model=names, **_columns),
    st.builds(ModelReplied, message=messages, usage=usages, stop_reason=names, model=names, **_columns),
    st.builds(
        ModelFailed,
        outcome=st.sampled_from(["failed", "cancelled", "interrupted"]),
        error=names,
        message=texts,
        partial=texts,
        usage=usages,
        **_columns,
    ),
    st.builds(ToolStarted, call_id=texts, attempt=st.integers(1, 2**40), **_columns),
    st.builds(ToolFinished, call_id=texts, outcome=st.sampled_from(OUTCOMES), content=result_contents, **_columns),
    st.builds(
        ApprovalRequested, call_id=texts, digest=names, question=texts, expires_at=st.none() | instants, **_columns
    ),
    st.builds(ApprovalDecided, call_id=texts, digest=names, approved=st.booleans(), by=texts, note=texts, **_columns),
    st.builds(
        Asked, of=st.sampled_from(["model", "human"]), question=texts, answer=json_values, usage=usages, **_columns
    ),
    st.builds(
        ContextChanged,
        reason=st.sampled_from(["import", "compact", "clear", "restore"]),
        messages=st.lists(messages, max_size=3).map(tuple),
        extra_data=json_values,
        usage=usages,
        **_columns,
    ),
    st.builds(DataChanged, patch=st.lists(patch_ops, max_size=3).map(tuple), **_columns),
    st.builds(CancelRequested, by=texts, reason=texts, **_columns),
    st.builds(Finished, answer=json_values, **_columns),
    st.builds(RunStopped, stopped=stops, **_columns),
)
