"""
What came of a call that nobody waits for any more: it is written into the log of its State, whatever became of its run.

A sync tool runs in a thread, which cannot be stopped from outside. When it ends after its call was given up, its result
is added as a message, as anybody may add one at any time; it does not ask for an answer.
"""

from __future__ import annotations

import logging

from alpineagents.errors import AlpineAgentsError
from alpineagents.messages import Message, Outcome, TextBlock, ToolCall
from alpineagents.results import Limited, keep
from alpineagents.state import State
from alpineagents.stores.base import Store

log = logging.getLogger("alpineagents")


async def record_late(
    store: Store | None, state: State, call: ToolCall, outcome: Outcome, shown: Limited, seconds: float
) -> None:
    """
    Add what came of a call to its State: in the store, or in memory where there is none.

    Args:
        seconds: how long the tool took.
    """
    words = f"The call {call.id} of {call.name} ended after all ({outcome}), after {seconds:.1f} seconds:\n"
    content = (TextBlock(text=words), *shown.content)
    message = Message(role="user", content=content, is_notice=True, late_call=call.id)
    if store is None:
        state.add_message(message)
        return
    try:
        if (await store.info(state.id)).created_at != state.snapshot().created_at:
            log.warning(
                "the late result of call %s is not kept: State %s was deleted and made again", call.id, state.id
            )
            return
        await keep(store, state, shown.whole)
        await store.post(state.id, message)
    except AlpineAgentsError as error:
        log.warning("the late result of call %s of State %s could not be saved: %s", call.id, state.id, error)
