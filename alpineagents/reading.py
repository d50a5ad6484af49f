"""
The tool by which a model reads on in a result that was too long to be shown as a whole.

A module of its own, since a tool is built where it is defined, and most programs that import the library need none.
"""

from __future__ import annotations

from alpineagents.errors import StoreFeatureError, ToolError
from alpineagents.results import boundary, text_of
from alpineagents.state import State
from alpineagents.tools import ToolContext, tool
from alpineagents.tools.base import MAX_RESULT_BYTES

__all__ = ["read_result"]


@tool(read_only=True)
async def read_result(result: str, context: ToolContext, start: int = 0, length: int = 20_000) -> str:
    """
    Read on in a tool's result that was too long to be shown as a whole.

    Args:
        result: its name, as the place says where something was left out.
        start: the first byte to read.
        length: how many bytes, 50,000 at most.
    """
    store = context.store
    try:
        found = [] if store is None else [await store.read_blob(place, result) for place in _places(context.state)]
    except StoreFeatureError:
        found = []
    whole = next((each for each in found if each is not None), None)
    if whole is None:
        raise ToolError(f"no result {result!r} is kept")
    start = boundary(whole, max(start, 0))
    # Shorter than what would be cut itself, and long enough for one character.
    part = whole[start : boundary(whole, start + min(max(length, 4), MAX_RESULT_BYTES // 2))]
    return f"[bytes {start} to {start + len(part)} of {len(whole)}]\n{text_of(part)}"


def _places(state: State) -> list[str]:
    """Return where a result of a State may lie: a fork that was made in memory has left those before it behind."""
    return [state.id] if state.parent_id is None else [state.id, state.parent_id]
