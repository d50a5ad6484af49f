"""
Check a store from its rows alone: what the library promises of every history, looked at afterwards.

Of each State: revisions 1, 2, 3 … without a gap; every Event can be read and can follow the ones before it; in the
context each call is followed by its one result; and the header says what the fold says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

import anyio.lowlevel

from alpineagents.checkpoint import RULES, start_at
from alpineagents.errors import StateError, StateNotFoundError
from alpineagents.events import ContextChanged, Event
from alpineagents.fold import apply, fold
from alpineagents.messages import Message
from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.base import Store
from alpineagents.stores.header import StateInfo, forked_status, header_of, summary_of


@dataclass(frozen=True, slots=True)
class Checked:
    """
    A State that was looked at.

    Attributes:
        info: its header.
        problems: what is wrong with it; empty where nothing is.
    """

    info: StateInfo
    problems: tuple[str, ...]


async def verify(store: Store, *, page: int = 200) -> AsyncIterator[Checked]:
    """
    Check every State of a store's namespace, one after the other; nothing is changed.

    A State that is written to meanwhile is looked at again, so the check can run beside the work.

    Example:
        >>> import anyio
        >>> from alpineagents import MemoryStore, Message, State
        >>> async def main():
        ...     store = MemoryStore()
        ...     await store.save(State(id="demo", messages=[Message.user("Hello")]))
        ...     return [(checked.info.id, checked.problems) async for checked in verify(store)]
        >>> anyio.run(main)
        [('demo', ())]
    """
    last: StateInfo | None = None
    while infos := await store.list(limit=page, after=last):
        for info in infos:
            checked = await _check(store, info)
            if checked is not None:
                yield checked
        last = infos[-1]


async def _check(store: Store, info: StateInfo) -> Checked | None:
    while True:
        try:
            problems = tuple([problem async for problem in _problems(store, info)])
            now = await store.info(info.id)
        except StateNotFoundError:
            return None  # deleted since it was listed
        if now.revision == info.revision:
            return Checked(info, problems)
        info = now


async def _problems(store: Store, info: StateInfo) -> AsyncIterator[str]:
    try:
        state = await store.load(info.id)
    except StateNotFoundError:
        raise
    except StateError as error:
        yield str(error)
        return
    if state.revision != info.revision:
        yield f"the header is at revision {info.revision}, the last Event is {state.revision}"
        return
    async for problem in _checkpoints(state.history):
        yield problem
    value = state.snapshot()
    header = header_of(value)
    forked = forked_status(value) if state.is_new_fork else value.status
    expected = {
        "status": header.status,
        "created_at": header.created_at,
        "first_message": header.first_message,
        **dict(summary_of(value)),
    }
    for name, right in expected.items():
        if getattr(info, name) not in ((right, forked) if name == "status" else (right,)):
            yield f"the header says {name}={getattr(info, name)!r}, the history {right!r}"
    open_calls = list(value.calls)
    if (found := list(unanswered(value.messages))) != open_calls:
        yield f"the calls {found} have no result in the context, where {open_calls} are open"


async def _checkpoints(history: Sequence[Event]) -> AsyncIterator[str]:
    """Say which changes of the context know another State before them than the history does."""
    value = StateSnapshot()
    changes = [event for event in history if isinstance(event, ContextChanged)]
    for event in changes:
        value = fold(value, history[value.revision : event.revision])
        start = start_at(event)
        known = event.checkpoint is None or event.checkpoint.rules != RULES
        if not known and (start is None or apply(start, event) != value):
            yield f"the checkpoint of revision {event.revision} is not what the history before it comes to"
        await anyio.lowlevel.checkpoint()


def unanswered(messages: Iterable[Message]) -> Iterable[str]:
    """Return the calls that the next message does not answer, in the order asked, each with one result."""
    asked: list[str] = []
    for message in messages:
        answered = [result.call_id for result in message.tool_results]
        yield from (call for call in asked if answered.count(call) != 1)
        yield from (call for call in answered if call not in asked)
        asked = [call.id for call in message.tool_calls]
    yield from asked
