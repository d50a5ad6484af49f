"""What a tool may know of the call that it serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from alpineagents.state import State


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
