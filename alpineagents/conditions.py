"""
Conditions to stop a loop: functions of the State, for `@loop(until=[…])`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable

from alpineagents import clock
from alpineagents.errors import ConfigError
from alpineagents.events import RunStarted
from alpineagents.snapshot import last_said
from alpineagents.state import CLEARED, State

Condition = Callable[[State], bool | Awaitable[bool]]
"""Tells whether a loop is to stop; sync or async."""


def waiting_for_user(state: State) -> bool:
    """
    Tell whether the model has answered, so that it is a person's turn.

    A late result behind the answer asks for no other one.

    Example:
        >>> from alpineagents import Message
        >>> waiting_for_user(State(messages=[Message.user("Hello")]))
        False
    """
    last = last_said(state.messages)
    return not state.pending_calls and last is not None and last.role == "assistant"


def spent_more_than(usd: float) -> Condition:
    """
    Stop once the State has cost more than this.

    All of the State counts, what came before this run too, so that a crash gives no new budget.

    Args:
        usd: US dollars.

    Raises:
        ConfigError: it is no such number. In a run: the price of the model is not known, so nothing would be counted.

    Example:
        >>> spent_more_than(0.5)(State())
        False
    """
    limit = _positive(usd, "spent_more_than(0.50)", "dollars")

    def spent_more_than(state: State) -> bool:
        usage = state.usage
        if state.turn and usage.unpriced_requests >= usage.requests > 0:
            raise ConfigError(
                f"State {state.id!r} cannot be stopped by what it costs: the price of its model is not known. "
                "Give the model its price, or stop it by @loop(…, limit=50)"
            )
        return usage.cost_usd > limit

    return spent_more_than


def out_of_time(seconds: float) -> Condition:
    """
    Stop once the run has taken this long.

    It is looked at between turns. What must end in the middle of one needs a timeout around the run.

    Raises:
        ConfigError: it is no such number.

    Example:
        >>> out_of_time(60)(State())
        False
    """
    limit = _positive(seconds, "out_of_time(60)", "seconds")

    def out_of_time(state: State) -> bool:
        for event in reversed(state.history):
            if isinstance(event, RunStarted):
                return (clock.now() - event.at).total_seconds() > limit
        return False

    return out_of_time


def repeating(times: int = 3) -> Condition:
    """
    Stop when the model goes round in circles: it makes the same calls with the same results again and again.

    A circle may be of several turns. Anything else that is said, or a result that differs, ends it.

    Args:
        times: how often the same has happened.

    Raises:
        ConfigError: it is not a whole number above 1.

    Example:
        >>> repeating(3)(State())
        False
    """
    if type(times) is not int or times < 2:
        raise ConfigError(f"{times!r:.80} is not a number of times, 2 or more: until=[waiting_for_user, repeating(3)]")

    def repeating(state: State) -> bool:
        turns = _turns(state)
        return any(
            all(turns[at] == turns[at % length] for at in range(length, length * times))
            for length in range(1, len(turns) // times + 1)
        )

    return repeating


def _turns(state: State) -> list[Hashable]:
    """Return what was called and given back in each turn since anything else was said, the last one first."""
    turns: list[Hashable] = []
    messages = state.messages
    for place in range(len(messages) - 1, 0, -2):
        results, calls = messages[place].tool_results, messages[place - 1].tool_calls
        if not results or not calls or any(result.text == CLEARED for result in results):
            break
        given = tuple(
            result.model_copy(update={"call_id": "-"}).model_dump_json(ensure_ascii=True) for result in results
        )
        asked = tuple(call.model_copy(update={"id": "-"}).model_dump_json(ensure_ascii=True) for call in calls)
        turns.append((asked, given))
    return turns


def _positive(number: object, line: str, unit: str) -> float:
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 < number < math.inf:
        raise ConfigError(f"{number!r:.80} is not a number of {unit}: until=[waiting_for_user, {line}]")
    return float(number)
