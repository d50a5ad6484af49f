"""
The tool by which a model reads on in a result that was too long to be shown as a whole.

A module of its own, since a tool is built where it is defined, and most programs that import the library need none.
"""

from __future__ import annotations

from alpineagents.errors import StoreFeatureError, ToolError
from alpineagents.results import boundary, text_of
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
        whole = None if store is None else await store.read_blob(context.state_id, result)
    except StoreFeatureError:
        whole = None
    if whole is None:
        raise ToolError(f"no result {result!r} is kept")
    start = boundary(whole, max(start, 0))
    # Shorter than what would be cut itself, and long enough for one character.
    part = whole[start : boundary(whole, start + min(max(length, 4), MAX_RESULT_BYTES // 2))]
    return f"[bytes {start} to {start + len(part)} of {len(whole)}]\n{text_of(part)}"
