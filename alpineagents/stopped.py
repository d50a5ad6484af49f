"""Why a run stopped: values that are stored, listed and shown."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from alpineagents.messages import ToolCall
from alpineagents.values import Json, Text


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class StoppedByUntil(_Fact):
    """
    A condition of the loop's `until` held.

    Attributes:
        name: the name of the condition, such as `waiting_for_user`.
    """

    kind: Literal["until"] = "until"
    name: str

    def __str__(self) -> str:
        return f"stopped by {self.name}"


class StoppedByLimit(_Fact):
    """
    The loop took as many turns as its `limit` allows in one run.

    Attributes:
        turns: the limit.
    """

    kind: Literal["limit"] = "limit"
    turns: int

    def __str__(self) -> str:
        return f"stopped at the limit of {self.turns} turns"


class StoppedByFinish(_Fact):
    """
    `state.finish(answer)` was called.

    Attributes:
        answer: what was handed to it.
    """

    kind: Literal["finish"] = "finish"
    answer: Json = None

    def __str__(self) -> str:
        return "finished"


class StoppedByPermission(_Fact):
    """
    A rule refused a call and asked for the run to end.

    Attributes:
        call: the call.
        reason: why it was refused.
    """

    kind: Literal["permission"] = "permission"
    call: ToolCall
    reason: Text

    def __str__(self) -> str:
        return f"stopped by permission: {self.call.name} was refused"


class StoppedByCancel(_Fact):
    """
    The run was cancelled: by its task, by Ctrl+C, by a reader that left the stream, or by a request.

    Attributes:
        by: who asked for it, where it was a request.
    """

    kind: Literal["cancel"] = "cancel"
    by: Text = ""

    def __str__(self) -> str:
        return f"cancelled by {self.by}" if self.by else "cancelled"


class StoppedByError(_Fact):
    """
    An exception ended the run.

    Attributes:
        error: name of its class.
        message: its text, cut at 2,000 characters.
    """

    kind: Literal["error"] = "error"
    error: str
    message: Text

    def __str__(self) -> str:
        return f"failed with {self.error}: {self.message}"


class WaitingForApproval(_Fact):
    """
    Calls wait for a person to approve or deny them.

    Attributes:
        call_ids: the calls, those of States that serve a call of this one included.
        children: the calls of such States, by the id of the State.
    """

    kind: Literal["approval"] = "approval"
    call_ids: tuple[str, ...]
    children: dict[str, tuple[str, ...]] = Field(default_factory=dict, exclude_if=lambda children: not children)

    def __str__(self) -> str:
        return f"waiting for approval of {len(self.call_ids)} call(s)"


Stopped = Annotated[
    StoppedByUntil
    | StoppedByLimit
    | StoppedByFinish
    | StoppedByPermission
    | StoppedByCancel
    | StoppedByError
    | WaitingForApproval,
    Field(discriminator="kind"),
]
