"""A State and all that may legally happen to it next: histories for the properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from alpineagents import State
from alpineagents.events import (
    AgentInfo,
    ApprovalDecided,
    ApprovalRequested,
    Asked,
    CancelRequested,
    ContextChanged,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from alpineagents.messages import Message, TextBlock, ToolCall, ToolResultBlock
from alpineagents.snapshot import CallState, StateSnapshot
from tests.properties import values

Draw = Callable[[st.SearchStrategy[Any]], Any]

NEVER_STARTED = ("input_error", "denied", "cancelled")
STARTED = ("ok", "error", "input_error", "denied", "interrupted", "unknown")


class Driver:
    """
    Does to a State what callers and runs do to it, and nothing that they may not.

    Attributes:
        snapshots: the value at each revision, as it was then.
        dumps: each of these values written out in full at that time.
        late_results: the values before and after each result that came late.
    """

    def __init__(self, draw: Draw, state: State | None = None) -> None:
        self.draw = draw
        self.state = State(id="driven") if state is None else state
        self.runs = 0
        self.snapshots = [self.state.snapshot()]
        self.dumps = [dump(self.state.snapshot())]
        self.late_results: list[tuple[StateSnapshot, StateSnapshot]] = []

    def step(self) -> None:
        """Do one thing that may be done now."""
        before = self.state.revision
        getattr(self, self.draw(st.sampled_from(self.legal())))()
        # An edit that changes nothing is no Event.
        if self.state.revision > before:
            self.snapshots.append(self.state.snapshot())
            self.dumps.append(dump(self.state.snapshot()))

    def legal(self) -> list[str]:
        """Name what may be done now."""
        value = self.state.snapshot()
        calls = value.calls.values()
        open_calls = [call for call in calls if call.result is None]
        running = value.run_id is not None and value.run_id == self.state.run_id
        may = ["user_speaks", "program_speaks", "run_starts", "cancel_is_requested", "decision", "data_edit", "asked"]
        may += ["late_result"]
        # What a turn waits for comes first and often, so that most histories have whole turns.
        next_in_turn: list[str] = []
        if not running:
            next_in_turn.append("run_starts")
        if not value.requesting:
            may.append("finish")
            if not open_calls:
                may += ["import_reply", "compact", "clear", "restore"]
            if open_calls and not any(call.starts or call.result for call in calls):
                may.append("import_results")
        if running and value.requesting:
            may += ["model_fails", "summary"]
            next_in_turn.append("model_replies")
        if running and not value.requesting:
            may.append("run_stops")
            if value.messages and not open_calls:
                next_in_turn.append("model_is_asked")
            if open_calls:
                next_in_turn.append("tool_finishes")
            if self._startable():
                next_in_turn.append("tool_starts")
            if self._askable():
                next_in_turn.append("approval_is_requested")
        return [*next_in_turn * (2 * len(may) // max(1, len(next_in_turn))), *may]

    # ---------------------------------------------------------------------------------------- what callers do

    def user_speaks(self) -> None:
        self.state.add_message(Message.user(self._words()))

    def program_speaks(self) -> None:
        self.state.add_message(Message.notice(self._words()))

    def late_result(self) -> None:
        message = Message.notice(self._words()).model_copy(update={"late_call": "a"})
        before = self.state.snapshot()
        self.state.add_message(message)
        self.late_results.append((before, self.state.snapshot()))

    def import_reply(self) -> None:
        self.state.add_message(self._reply())

    def import_results(self) -> None:
        content = tuple(
            ToolResultBlock(call_id=call.id, content=(TextBlock(text="imported"),)) for call in self.state.pending_calls
        )
        self.state.add_message(Message(role="user", content=content))

    def finish(self) -> None:
        self.state.finish(self.draw(values.json_values))

    def data_edit(self) -> None:
        with self.state.edit_extra_data() as data:
            data[self.draw(st.sampled_from("ab"))] = self.draw(values.json_values)

    def compact(self) -> None:
        self.state.compact("what was said so far")

    def clear(self) -> None:
        self.state.clear_tool_results()

    def restore(self) -> None:
        whole = [value for value in self.snapshots if not value.pending_calls]
        self.state.restore(self.draw(st.sampled_from(whole)))

    # ---------------------------------------------------------------------------------------- what others post

    def cancel_is_requested(self) -> None:
        self._from_outside(CancelRequested, by="someone")

    def decision(self) -> None:
        waiting = list(self.state.snapshot().calls)
        call_id = self.draw(st.sampled_from([*waiting, "no such call"]))
        child_id = self.draw(st.sampled_from(["", "", "below"]))
        approved = self.draw(st.booleans())
        self._from_outside(ApprovalDecided, call_id=call_id, approved=approved, by="someone", child_id=child_id)

    # ---------------------------------------------------------------------------------------- what runs do

    def run_starts(self) -> None:
        self.runs += 1
        self.state.run_id = f"run{self.runs}"
        self.state.record(RunStarted, agent=AgentInfo(model="m"))

    def asked(self) -> None:
        self.state.record(Asked, of="human", question="Which one?", answer="that one")

    def model_is_asked(self) -> None:
        self.state.record(ModelRequested, model="m")

    def model_replies(self) -> None:
        message = self.state.with_unique_ids(self._reply())
        self.state.record(ModelReplied, message=message, usage=self.draw(values.usages))

    def summary(self) -> None:
        last = [message for message in self.state.messages[-1:] if not message.tool_results]
        messages = (Message.notice("a summary"), *last)
        self.state.record(ContextChanged, reason="compact", messages=messages, usage=self.draw(values.usages))

    def model_fails(self) -> None:
        outcome = self.draw(st.sampled_from(["failed", "cancelled", "interrupted"]))
        self.state.record(ModelFailed, outcome=outcome)

    def tool_starts(self) -> None:
        call = self.draw(st.sampled_from(self._startable()))
        self.state.record(ToolStarted, call_id=call.call.id, attempt=call.starts + 1)

    def tool_finishes(self) -> None:
        call = self.draw(st.sampled_from([call for call in self._calls() if call.result is None]))
        outcome = self.draw(st.sampled_from(STARTED if call.starts else NEVER_STARTED))
        self.state.record(ToolFinished, call_id=call.call.id, outcome=outcome, content=(TextBlock(text="done"),))

    def approval_is_requested(self) -> None:
        call = self.draw(st.sampled_from(self._askable()))
        self.state.record(ApprovalRequested, call_id=call.call.id, digest="d")

    def run_stops(self) -> None:
        self.state.record(RunStopped, stopped=self.draw(values.stops))
        self.state.run_id = None

    # ---------------------------------------------------------------------------------------- parts

    def _calls(self) -> list[CallState]:
        return list(self.state.snapshot().calls.values())

    def _startable(self) -> list[CallState]:
        return [call for call in self._calls() if call.result is None and call.approval not in ("requested", "denied")]

    def _askable(self) -> list[CallState]:
        return [call for call in self._calls() if call.result is None and call.approval is None and not call.starts]

    def _from_outside(self, kind: Any, **fields: Any) -> None:
        own, self.state.run_id = self.state.run_id, None
        self.state.record(kind, **fields)
        self.state.run_id = own

    def _words(self) -> str:
        return self.draw(st.sampled_from(["hello", "and then?", "\0", "\ud800", "\U0001f600"]))

    def _reply(self) -> Message:
        # Few ids, so that they repeat over turns and within one reply.
        ids = self.draw(st.lists(st.sampled_from(["a", "b", "a_2_0"]), max_size=3))
        calls = tuple(ToolCall(id=call_id, name="look") for call_id in ids)
        return Message(role="assistant", content=(TextBlock(text="I see"), *calls))


def dump(value: StateSnapshot) -> dict[str, Any]:
    """Write a value out in full, so that a change in any part of it shows."""
    return {
        "revision": value.revision,
        "created_at": value.created_at,
        "messages": [message.model_dump() for message in value.messages],
        "calls": {call_id: repr(call) for call_id, call in value.calls.items()},
        "queued": [message.model_dump() for message in value.queued],
        "requesting": value.requesting,
        "turn": value.turn,
        "usage": value.usage.model_dump(),
        "stopped": repr(value.stopped),
        "status": value.status,
        "run_id": value.run_id,
        "cancelled_by": value.cancelled_by,
        "unserved_cancel_by": value.unserved_cancel_by,
        "decided_below": sorted(value.decided_below),
        "stop_reason": value.stop_reason,
        "first_message": value.first_message,
        "extra_data": value.extra_data,
        "answer": value.answer,
    }


@st.composite
def drivers(draw: Draw, max_steps: int = 30) -> Driver:
    """Give a State with a history of up to so many steps, all legal."""
    driver = Driver(draw)
    for _ in range(draw(st.integers(0, max_steps))):
        driver.step()
    return driver
