"""
Loops: one turn as an async function, and the rule for when to stop.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from alpineagents.conditions import Condition, waiting_for_user
from alpineagents.errors import ConfigError
from alpineagents.state import State
from alpineagents.stopped import Stopped

if TYPE_CHECKING:
    from alpineagents.agent import Agent

Turn = Callable[["Agent[Any]", State], Awaitable[None]]
"""One turn."""

_EXAMPLE = "@loop(until=waiting_for_user, limit=50)"


class Loop:
    """
    One turn, repeated until a condition holds or the limit is reached; `@loop` makes it.

    Called as a function in the turn of another loop, `await inner(agent, state)`, it takes its turns there and returns
    why it stopped, such as `StoppedByLimit`.

    Attributes:
        turn: the function.
        until: the conditions, checked before each turn.
        limit: how many turns one run takes at most.
    """

    def __init__(self, turn: Turn, until: tuple[Condition, ...], limit: int) -> None:
        self.turn, self.until, self.limit = turn, until, limit
        self.__name__ = getattr(turn, "__name__", type(turn).__name__)
        self.__doc__ = turn.__doc__

    def __repr__(self) -> str:
        names = ", ".join(_name(condition) for condition in self.until)
        return f"<Loop {self.__name__} until={names} limit={self.limit}>"

    async def __call__(self, agent: Agent[Any], state: State) -> Stopped:
        """Take the turns, in the run that goes on or in one of its own, and return why they ended."""
        return await agent.repeat(self, state)

    async def held(self, state: State) -> str | None:
        """Return the name of the first condition that holds, or None."""
        for condition in self.until:
            holds = condition(state)
            if inspect.isawaitable(holds):
                holds = await holds
            if callable(holds):
                name = _name(condition)
                raise ConfigError(f"{name} gave back a function, where True or False is due: until={name}(…)")
            if holds:
                return _name(condition)
        return None


def loop(
    turn: None = None, /, *, until: Condition | Iterable[Condition] | None = None, limit: int | None = None
) -> Callable[[Turn], Loop]:
    """
    Make a loop of an async function that is one turn.

    Args:
        until: stop when this holds, or one of these; checked before each turn.
        limit: how many turns one run takes at most; a run that reaches it stops with `StoppedByLimit`.

    Raises:
        ConfigError: there is no condition, no limit, or the function is not async or takes other parameters.

    Example:
        >>> @loop(until=waiting_for_user, limit=10)
        ... async def careful(agent, state):
        ...     await agent.think(state)
        ...     if state.pending_calls:
        ...         await agent.use_tools(state)
        >>> careful
        <Loop careful until=waiting_for_user limit=10>
    """
    if turn is not None:
        raise ConfigError(f"@loop says when to stop: {_EXAMPLE}")
    given = (until,) if callable(until) else until
    conditions = tuple(given) if isinstance(given, Iterable) else ()
    if not conditions or not all(callable(condition) for condition in conditions):
        raise ConfigError(f"until is a function of the State, or several: {_EXAMPLE}")
    for condition in conditions:
        _check_parameters(condition, "state")
    if type(limit) is not int or limit < 1:
        raise ConfigError(f"limit={limit!r} is not a number of turns, and a loop without one may never end: {_EXAMPLE}")

    def decorate(turn: Turn) -> Loop:
        if not inspect.iscoroutinefunction(turn):
            name = getattr(turn, "__name__", repr(turn))
            raise ConfigError(f"a turn is an async function: async def {name}(agent, state)")
        _check_parameters(turn, "agent", "state")
        return Loop(turn, conditions, limit)

    return decorate


def _check_parameters(function: Callable[..., object], *names: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin may not tell
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        takes, given = ", ".join(signature.parameters), ", ".join(names)
        raise ConfigError(
            f"{name}({takes}) cannot be called as {name}({given}): {error}. Write: {name}({given})"
        ) from None


def _name(condition: Condition) -> str:
    return getattr(condition, "__name__", type(condition).__name__)


@loop(until=waiting_for_user, limit=50)
async def default_loop(agent: Agent[Any], state: State) -> None:
    """Ask the model, then make the calls it asks for."""
    await agent.think(state)
    if state.pending_calls:
        await agent.use_tools(state)


async def compact_if_full(agent: Agent[Any], state: State, *, at: float = 0.6, keep: int = 4) -> bool:
    """
    Compact the context if it fills the model's window, in the turn of a loop.

    Args:
        at: from which part of the window on, between 0 and 1.
        keep: as `agent.compact` takes it; where what is kept fills the window by itself, less is.

    Returns:
        Whether a summary was put in the place of the context.

    Raises:
        ConfigError: the model does not say how large its window is, or an argument is none.
        ModelError: there is no summary.

    Example:
        >>> @loop(until=waiting_for_user, limit=50)
        ... async def long_one(agent, state):
        ...     await compact_if_full(agent, state, at=0.6)
        ...     await agent.think(state)
        ...     await agent.use_tools(state)
    """
    if not isinstance(at, (int, float)) or not 0 < at <= 1:
        raise ConfigError(f"at={at!r} is not a part of the window: await compact_if_full(agent, state, at=0.6)")

    def is_full() -> bool:
        used = agent.context_used(state)
        if used is None:
            raise ConfigError(
                f"model {agent.model.name!r} does not say how many tokens its window holds. Say it: "
                "model.context_tokens = 200_000"
            )
        return used >= at

    if not is_full():
        return False
    compacted = await agent.compact(state, keep=keep) is not None
    if keep and is_full():
        compacted = await agent.compact(state, keep=0) is not None or compacted
    return compacted
