"""
What can happen to a State: one frozen class a kind.

A released kind is never renamed and a released field never changes its meaning: files and databases hold them for
years. What must change gets a higher `version`, and the codec learns to read the old one.

The order in which Events may follow each other is the business of the fold.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from alpineagents.messages import FailedModel, Image, Message, Outcome, TextBlock
from alpineagents.patch import PatchOp
from alpineagents.stopped import Stopped
from alpineagents.usage import Usage
from alpineagents.values import Json, JsonObject, Text


def _is_default(value: object) -> bool:
    # A field that a later release brought is not written where it says nothing, so older rows keep their bytes.
    return value in (None, "", (), NOTHING)


NOTHING = Usage()


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class AgentInfo(_Fact):
    """
    The Agent as a State remembers it, to notice when another one goes on.

    Attributes:
        name: name of the Agent, or None.
        model: name of its model.
        system: its system prompt.
        tools: for each tool, a digest of what the model is told of it.
        permissions: a digest of its rules; None where it has none.
    """

    name: str | None = None
    model: str
    system: Text | None = None
    tools: dict[str, str] = Field(default_factory=dict)
    permissions: str | None = Field(default=None, exclude_if=_is_default)


class ParentCall(_Fact):
    """
    The call that a State serves.

    Attributes:
        state_id: the State that the call belongs to.
    """

    state_id: str
    call_id: Text


Always = Literal["", "state", "all"]
"""How far an approval goes beyond its call: not at all, to the later calls of the tool in this State, or in all."""


class _Event(_Fact):
    version: Literal[1] = 1
    revision: int = Field(ge=1)
    at: AwareDatetime
    run_id: str | None = None


class RunStarted(_Event):
    """
    A run took the State over.

    Attributes:
        agent: who runs; None where it is the same as in the run before.
        parent: the call that this State serves; None where it serves none, or the same as in the run before.
        fork: the State's own id in the first run of a fork: what was open before was begun in another State.
    """

    kind: Literal["run_started"] = "run_started"
    agent: AgentInfo | None = None
    parent: ParentCall | None = Field(default=None, exclude_if=_is_default)
    fork: Text = Field(default="", exclude_if=_is_default)


class MessageAdded(_Event):
    """A message came in. Anyone may add one at any time; while a turn is open, it enters the context after it."""

    kind: Literal["message_added"] = "message_added"
    message: Message


class ModelRequested(_Event):
    """
    A model is about to be asked for the next message.

    Attributes:
        model: its name.
    """

    kind: Literal["model_requested"] = "model_requested"
    model: str


class ModelReplied(_Event):
    """
    The model replied; if it calls tools, a turn is open until each call has a result.

    Attributes:
        model: who replied, as the provider names it.
        by: name of the Model that replied, where it is one of several, such as those of a `FallbackModel`; "" where
            there is one.
        failures: the Models that were asked before it.
    """

    kind: Literal["model_replied"] = "model_replied"
    message: Message
    usage: Usage = Usage()
    stop_reason: str = "end_turn"
    model: str = ""
    by: Text = Field(default="", exclude_if=_is_default)
    failures: tuple[FailedModel, ...] = Field(default=(), exclude_if=_is_default)


class ModelFailed(_Event):
    """
    There is no reply to the last request, and there will be none.

    Attributes:
        outcome: the model `failed`, the run was `cancelled`, or the process died (`interrupted`).
        error: name of the exception's class.
        message: its text, cut at 2,000 characters.
        partial: what a person had seen of the reply.
        by: name of the Model that was asked last, where it is one of several; "" where there is one, or the first was.
        failures: the Models that were asked before it.
    """

    kind: Literal["model_failed"] = "model_failed"
    outcome: Literal["failed", "cancelled", "interrupted"]
    error: str = ""
    message: Text = ""
    partial: Text = ""
    usage: Usage = Usage()
    by: Text = Field(default="", exclude_if=_is_default)
    failures: tuple[FailedModel, ...] = Field(default=(), exclude_if=_is_default)


class ToolStarted(_Event):
    """
    A tool is about to be entered; from here on its outcome is in doubt until `ToolFinished`.

    Attributes:
        attempt: 1, or more where the call was started before.
        child_id: the State in which a subagent works on the call; "" where the tool is none.
    """

    kind: Literal["tool_started"] = "tool_started"
    call_id: Text
    attempt: int = Field(default=1, ge=1)
    child_id: str = Field(default="", exclude_if=_is_default)


class ToolFinished(_Event):
    """
    A call has its result. The results of a turn enter the context together, in the order asked.

    Attributes:
        children: the States that served the call, by their ids.
        usage: what they took, all of it.
    """

    kind: Literal["tool_finished"] = "tool_finished"
    call_id: Text
    outcome: Outcome
    content: tuple[Annotated[TextBlock | Image, Field(discriminator="type")], ...] = ()
    children: tuple[str, ...] = Field(default=(), exclude_if=_is_default)
    usage: Usage = Field(default=NOTHING, exclude_if=_is_default)


class ApprovalRequested(_Event):
    """
    A call waits for a person.

    Attributes:
        digest: SHA-256 of the tool's name and the arguments; a decision counts for these only.
        question: what the person is asked.
        expires_at: when the request counts as denied.
        signature: SHA-256 of the tool's name and its parameters, which the digest is made with; "" where the release
            that wrote it did not say.
    """

    kind: Literal["approval_requested"] = "approval_requested"
    call_id: Text
    digest: str
    question: Text = ""
    expires_at: AwareDatetime | None = None
    signature: str = Field(default="", exclude_if=_is_default)


class ApprovalDecided(_Event):
    """
    A person decided on a call, or a rule did.

    Attributes:
        digest: that of the request which the person saw, or with `args` that of the call as they changed it; "" where
            it is not known.
        by: who.
        note: why, in their words.
        args: the arguments that the tool gets instead of the model's; None leaves them as they are.
        always: `"state"` allows every later call of this tool in this State as well, `"all"` in all States.
        child_id: the State below this one that the decision counts in; here it says that nobody waits for it any more.
        seal: of all that it says; a decision that was changed where it is stored counts for nothing.
    """

    kind: Literal["approval_decided"] = "approval_decided"
    call_id: Text
    digest: str = ""
    approved: bool
    by: Text
    note: Text = ""
    args: JsonObject | None = Field(default=None, exclude_if=_is_default)
    always: Always = Field(default="", exclude_if=_is_default)
    child_id: str = Field(default="", exclude_if=_is_default)
    seal: str = Field(default="", exclude_if=_is_default)


class Asked(_Event):
    """
    A question beside the conversation got its answer; neither is in the context.

    Attributes:
        of: whom.
        by: name of the Model that was asked last, where it is one of several; "" where there is one, or the first was.
        failures: the Models that were asked before it.
    """

    kind: Literal["asked"] = "asked"
    of: Literal["model", "human"]
    question: Text
    answer: Json = None
    usage: Usage = Usage()
    by: Text = Field(default="", exclude_if=_is_default)
    failures: tuple[FailedModel, ...] = Field(default=(), exclude_if=_is_default)


class Checkpoint(_Fact):
    """
    What a State is before its context changes, beside the context: with it, a reader can begin at that Event.

    A replay of the whole history does without it. Fields that are named as in `StateSnapshot` mean the same.

    Attributes:
        rules: which rules of the fold computed it; a release with other ones replays the whole history.
        extra_data: None where the Event brings new ones.
        stop_reason: of the last reply, where that is the last message of the new context but for late results.
        seal: of all that it says; one that was changed where it is stored counts for nothing.
    """

    rules: int = 1
    created_at: AwareDatetime | None = Field(default=None, exclude_if=_is_default)
    queued: tuple[Message, ...] = Field(default=(), exclude_if=_is_default)
    turn: int = 0
    usage: Usage = Field(default=NOTHING, exclude_if=_is_default)
    stopped: Stopped | None = Field(default=None, exclude_if=_is_default)
    status: str = "ready"
    run_id: str | None = Field(default=None, exclude_if=_is_default)
    agent: AgentInfo | None = Field(default=None, exclude_if=_is_default)
    cancelled_by: Text | None = Field(default=None, exclude_if=lambda by: by is None)
    unserved_cancel_by: Text | None = Field(default=None, exclude_if=lambda by: by is None)
    first_message: Text = Field(default="", exclude_if=_is_default)
    always_allowed: tuple[str, ...] = Field(default=(), exclude_if=_is_default)
    parent: ParentCall | None = Field(default=None, exclude_if=_is_default)
    forked_as: Text = Field(default="", exclude_if=_is_default)
    decided_below: tuple[tuple[str, Text], ...] = Field(default=(), exclude_if=_is_default)
    extra_data: Json = Field(default=None, exclude_if=_is_default)
    stop_reason: str = Field(default="", exclude_if=_is_default)
    seal: str = ""


class ContextChanged(_Event):
    """
    The context was replaced as a whole; the history keeps what it was.

    Behind a `ModelRequested` of the same run, it is the reply: the model was asked for the summary.

    Attributes:
        messages: the new context.
        extra_data: the new extra data; None where it stays.
        by: name of the Model that wrote the summary, where it is one of several, as in `ModelReplied`.
        failures: the Models that were asked before it.
        checkpoint: what else is to be known to begin here; None where the release that wrote it did not say.
    """

    kind: Literal["context_changed"] = "context_changed"
    reason: Literal["import", "compact", "clear", "restore"]
    messages: tuple[Message, ...]
    extra_data: Json = None
    usage: Usage = Usage()
    by: Text = Field(default="", exclude_if=_is_default)
    failures: tuple[FailedModel, ...] = Field(default=(), exclude_if=_is_default)
    checkpoint: Checkpoint | None = Field(default=None, exclude_if=_is_default)


class DataChanged(_Event):
    """
    The extra data changed.

    Attributes:
        patch: JSON Patch from what it was to what it is.
    """

    kind: Literal["data_changed"] = "data_changed"
    patch: tuple[PatchOp, ...]


class CancelRequested(_Event):
    """Someone asks the run that goes on to stop."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    by: Text = ""
    reason: Text = ""


class Finished(_Event):
    """The work is done; the run stops after this turn."""

    kind: Literal["finished"] = "finished"
    answer: Json = None


class RunStopped(_Event):
    """The run gave the State up."""

    kind: Literal["run_stopped"] = "run_stopped"
    stopped: Stopped


Event = (
    RunStarted
    | MessageAdded
    | ModelRequested
    | ModelReplied
    | ModelFailed
    | ToolStarted
    | ToolFinished
    | ApprovalRequested
    | ApprovalDecided
    | Asked
    | ContextChanged
    | DataChanged
    | CancelRequested
    | Finished
    | RunStopped
)
"""Any Event. `isinstance(item, Event)` tells one from the other items of a stream."""

KINDS: dict[str, type[Event]] = {kind.model_fields["kind"].default: kind for kind in get_args(Event)}
"""Each kind of Event by the name that is stored."""


def is_inbox(event: Event) -> bool:
    """
    Tell whether anyone may add this Event at any time.

    The fold takes such an Event at any place, so a run folds it in before its own instead of giving way to it.
    """
    if event.run_id is not None:
        return False
    if isinstance(event, MessageAdded):
        return event.message.is_plain
    return isinstance(event, (ApprovalDecided, CancelRequested))
