"""What a tool may know of the call that it serves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from alpineagents.errors import ConfigError

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from sqlalchemy.ext.asyncio import AsyncConnection

    from alpineagents.state import State
    from alpineagents.stores.base import Store
    from alpineagents.subagents import Caller


class Progress(BaseModel):
    """
    How far a call has come, as its tool reports it. It is shown and not stored.

    Attributes:
        call_id: the call.
        tool_name: its tool.
        progress: how much is done.
        total: how much there is to do; None where nobody knows.
        message: what is being done.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: Literal["progress"] = "progress"
    call_id: str
    tool_name: str
    progress: float
    total: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """
    Say which call of which run a tool serves; the model never sees it.

    A parameter with this type hint is filled in when a model calls the tool. Hand the key to whatever the tool
    changes, so that a call which is tried again after a crash takes effect once.

    Attributes:
        state_id: id of the State that the call belongs to.
        run_id: id of the run that makes it.
        call_id: id of the call, unique in its State.
        tool_name: the tool's name, as the model knows it.
        attempt: 1, or more where the call was started before.
        idempotency_key: the same each time that one call is tried, and of no other call.
        state: the State, to be read; what a tool adds to it is saved with its result.
        connection: for a tool made with `@tool(transaction=True)`, a connection inside the transaction in which the
            result will be committed: what the tool does through it and the result are both kept, or neither. The tool
            leaves commit and rollback to the library, and does not use the store meanwhile. None for other tools.
        store: where the State is saved; None where it is not.
        emit: where `report` hands over; None where nobody looks.
        caller: what `agent.run(prompt, context=context)` makes a child of; None outside a run.
        portal: for a sync tool, the way from its thread to the event loop of the run; what it does there is cancelled
            with the call. None for async tools.

    Example:
        >>> from alpineagents import State
        >>> from alpineagents.tools import ToolContext, tool
        >>> @tool
        ... def pay(amount: int, context: ToolContext) -> str:
        ...     "Pay an amount."
        ...     return f"paid {amount} under {context.idempotency_key}"
        >>> sorted(pay.spec.parameters["properties"])
        ['amount']
        >>> pay(5, ToolContext("s1", "r1", "c1", "pay", 1, "s1/c1", State(id="s1")))
        'paid 5 under s1/c1'
    """

    state_id: str
    run_id: str
    call_id: str
    tool_name: str
    attempt: int
    idempotency_key: str
    state: State = field(repr=False, compare=False)
    connection: AsyncConnection | None = field(default=None, repr=False, compare=False)
    store: Store | None = field(default=None, repr=False, compare=False)
    emit: Callable[[Progress], None] | None = field(default=None, repr=False, compare=False)
    caller: Caller | None = field(default=None, repr=False, compare=False)
    portal: BlockingPortal | None = field(default=None, repr=False, compare=False)

    def report(self, progress: float, total: float | None = None, message: str = "") -> None:
        """
        Say how far the call has come, to who reads the stream of the run or its reporter; from any thread.

        Args:
            progress: how much is done, in whatever unit.
            total: how much there is to do; None where nobody knows.
            message: what is being done.

        Raises:
            ConfigError: these are not numbers and a text.
        """
        numbers = (progress, 0 if total is None else total)
        if not all(isinstance(each, (int, float)) and math.isfinite(each) for each in numbers):
            raise ConfigError(f"report({progress!r}, {total!r}) is not of two numbers: context.report(3, total=10)")
        if not isinstance(message, str):
            raise ConfigError(
                f"a {type(message).__name__} is no message: context.report(3, total=10, message=str(value))"
            )
        if self.emit is not None:
            total = None if total is None else float(total)
            self.emit(
                Progress(
                    call_id=self.call_id,
                    tool_name=self.tool_name,
                    progress=float(progress),
                    total=total,
                    message=message,
                )
            )
