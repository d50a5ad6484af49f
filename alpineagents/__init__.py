"""Agents whose every step is a row in a SQL table: what was acknowledged is never lost, and any process goes on."""

from importlib import import_module
from typing import TYPE_CHECKING

from alpineagents import models, stores
from alpineagents.agent import Agent
from alpineagents.approvals import PendingApproval
from alpineagents.conditions import out_of_time, repeating, spent_more_than, waiting_for_user
from alpineagents.errors import (
    AlpineAgentsError,
    AlreadyDecidedError,
    ApprovalError,
    AuthError,
    ConfigError,
    ContextTooLongError,
    EventFormatError,
    EventOrderError,
    ModelError,
    OutputError,
    ProviderError,
    RateLimitError,
    ResumeWarning,
    StateBusyError,
    StateConflictError,
    StateDamagedError,
    StateError,
    StateExistsError,
    StateIdError,
    StateNotFoundError,
    StoreClosedError,
    StoreError,
    StoreFeatureError,
    StoreSchemaError,
    StoreUnavailableError,
    SyncInsideLoopError,
    ToolDefinitionError,
    ToolError,
    ToolInputError,
    ValueNotStorableError,
)
from alpineagents.events import (
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
from alpineagents.human import Human
from alpineagents.loop import Loop, compact_if_full, default_loop, loop
from alpineagents.messages import (
    FailedModel,
    Image,
    Message,
    OutputSpec,
    RawBlock,
    Reply,
    Request,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models import Delta, Fallback, Model, Retry
from alpineagents.permissions import Allow, Ask, Deny, ToolRequest
from alpineagents.reporter import Reporter
from alpineagents.snapshot import SnapshotDiff, StateSnapshot
from alpineagents.state import State
from alpineagents.stopped import (
    StoppedByCancel,
    StoppedByError,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    WaitingForApproval,
)
from alpineagents.stores import AlwaysAllowed, MemoryStore, StateHeader, StateInfo, StateKey, Store
from alpineagents.stream import RunStream
from alpineagents.terminal import Terminal
from alpineagents.tools import Progress, Tool, ToolContext, tool
from alpineagents.usage import Price, Usage

__all__ = [
    "ToolRequest",
    "Deny",
    "Ask",
    "Allow",
    "Human",
    "PendingApproval",
    "ApprovalError",
    "AlreadyDecidedError",
    "Agent",
    "AlpineAgentsError",
    "AlwaysAllowed",
    "Anthropic",
    "ApprovalDecided",
    "ApprovalRequested",
    "Asked",
    "AuthError",
    "CancelRequested",
    "ConfigError",
    "ContextChanged",
    "ContextTooLongError",
    "DataChanged",
    "Delta",
    "Event",
    "EventFormatError",
    "EventOrderError",
    "FailedModel",
    "Fallback",
    "FallbackModel",
    "FileStore",
    "Finished",
    "Image",
    "Loop",
    "MemoryStore",
    "Message",
    "MessageAdded",
    "Model",
    "ModelError",
    "ModelFailed",
    "ModelReplied",
    "ModelRequested",
    "OpenAICompatible",
    "OpenAIResponses",
    "OutputError",
    "OutputSpec",
    "Price",
    "Progress",
    "ProviderError",
    "RateLimitError",
    "RawBlock",
    "Reply",
    "Reporter",
    "Request",
    "ResumeWarning",
    "Retry",
    "RunStarted",
    "RunStopped",
    "RunStream",
    "SQLStore",
    "SnapshotDiff",
    "State",
    "StateBusyError",
    "StateConflictError",
    "StateDamagedError",
    "StateError",
    "StateExistsError",
    "StateHeader",
    "StateIdError",
    "StateInfo",
    "StateKey",
    "StateNotFoundError",
    "StateSnapshot",
    "StoppedByCancel",
    "StoppedByError",
    "StoppedByFinish",
    "StoppedByLimit",
    "StoppedByPermission",
    "StoppedByUntil",
    "Store",
    "StoreClosedError",
    "StoreError",
    "StoreFeatureError",
    "StoreSchemaError",
    "StoreUnavailableError",
    "SyncInsideLoopError",
    "Terminal",
    "TextBlock",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolFinished",
    "ToolInputError",
    "ToolResultBlock",
    "ToolSpec",
    "ToolStarted",
    "Usage",
    "ValueNotStorableError",
    "WaitingForApproval",
    "compact_if_full",
    "default_loop",
    "loop",
    "out_of_time",
    "read_result",
    "repeating",
    "resolve_model",
    "spent_more_than",
    "tool",
    "waiting_for_user",
]

if TYPE_CHECKING:
    from alpineagents.models import Anthropic, FallbackModel, OpenAICompatible, OpenAIResponses, resolve_model
    from alpineagents.reading import read_result
    from alpineagents.stores import FileStore, SQLStore
else:
    # They are imported when a program names them. Not for the type checker, which would then take any name.
    def __getattr__(name: str) -> object:
        reading = [import_module("alpineagents.reading")] if name == "read_result" else []
        home = next((module for module in (models, stores, *reading) if name in module.__all__), None)
        if home is None or name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
