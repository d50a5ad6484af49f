"""
What a provider accepts, written down without a look at the library's own rules.

    user       "…"                       assistant  calls a, b      user  results a, b, in this order, and nothing else
    Calls stand in assistant messages only, results in user messages only, and no id occurs twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpineagents.messages import Message, ToolCall, ToolResultBlock


def complaints(messages: Sequence[Message]) -> list[str]:
    """Say all that a provider would refuse in a request with these messages."""
    found: list[str] = []
    used: set[str] = set()
    owed: list[str] = []
    for place, message in enumerate(messages):
        asked = [block.id for block in message.content if isinstance(block, ToolCall)]
        given = [block.call_id for block in message.content if isinstance(block, ToolResultBlock)]
        if asked and message.role != "assistant":
            found.append(f"message {place} calls a tool and is not of the assistant")
        if given and message.role != "user":
            found.append(f"message {place} has results and is not of the user")
        if given != owed:
            found.append(f"message {place} has results for {given}, where {owed} were asked for")
        for call_id in asked:
            if call_id in used:
                found.append(f"message {place} uses the id {call_id!r} again")
            used.add(call_id)
        owed = asked
    if owed:
        found.append(f"{owed} have no result")
    return found
