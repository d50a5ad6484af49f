"""What the library asks of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from alpineagents.messages import FailedModel, Reply, Request
from alpineagents.usage import Usage


class Delta(BaseModel):
    """
    A part of a reply that is still arriving.

    Attributes:
        kind: `text` that a person reads, `thinking`, or `tool_args`, the arguments of a call as JSON.
        text: what came since the last one; the first of a call may be empty and just name the tool.
        call_index: which call of the reply `tool_args` belong to, counted from 0.
        tool_name: the tool of that call.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["text", "thinking", "tool_args"] = "text"
    text: str
    call_index: int | None = None
    tool_name: str = ""


class Retry(BaseModel):
    """
    A request failed and is sent again; what was shown of its reply, if anything, counts no longer.

    Attributes:
        attempt: the number of the attempt that follows, from 2 on.
        wait_seconds: how long until then.
        error: why the last one failed.
        usage: what that one took.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["retry"] = "retry"
    attempt: int
    wait_seconds: float
    error: str
    usage: Usage


class Fallback(BaseModel):
    """
    A model failed and another one is asked.

    Attributes:
        model: name of the one that is asked now.
        error: why the last one failed.
        usage: what its last attempt took.
        failed: the one that failed, as the history is to have it.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["fallback"] = "fallback"
    model: str
    error: str
    usage: Usage
    failed: FailedModel | None = None


Emitted = Delta | Retry | Fallback
"""What a Model tells while it replies."""

Emit = Callable[[Emitted], None]
"""Where a Model hands over what arrives; it returns at once and never raises."""


@runtime_checkable
class Pooled(Protocol):
    """A Model that may use the connections of another, so that the models of an Agent have one pool."""

    def share_connections(self, other: Pooled) -> None: ...


@runtime_checkable
class Model(Protocol):
    """
    Anything that answers a request.

    One Model serves many runs at the same time, so a request leaves nothing behind in it.

    A model that knows how many tokens its window holds says so in an attribute `context_tokens`, an int.

    Attributes:
        name: as history and lists show it.
    """

    @property
    def name(self) -> str: ...

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Answer a request.

        Args:
            emit: called with each part of the reply as it arrives, where the caller wants to see it.

        Raises:
            ModelError: there is no reply, for a reason that the subclass names.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the Model holds open."""
        ...


def window_of(model: Model) -> int | None:
    """Return how many tokens a model's window holds, where it says so."""
    tokens = getattr(model, "context_tokens", None)
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0 else None
