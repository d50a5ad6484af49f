"""Ways to cancel a run at every moment that its event loop has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio

from alpineagents import Agent, Request, SQLStore, Store, tool
from alpineagents.testing import FakeModel, tool_call


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that does something at its n-th iteration after it was armed."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0
        self._action: Callable[[], object] | None = None

    def arm(self, iterations: int, action: Callable[[], object]) -> None:
        """Do something after so many iterations."""
        self._left, self._action = iterations, action

    def disarm(self) -> bool:
        """Say whether it was done, and do it no more."""
        action, self._action = self._action, None
        return action is None

    def _run_once(self) -> None:
        if self._action is not None:
            self._left -= 1
            if self._left <= 0:
                action, self._action = self._action, None
                action()
        super()._run_once()


class CountingTasks:
    """The same for trio, which counts the steps of its tasks."""

    def __init__(self, steps: int, action: Callable[[], object]) -> None:
        self._left, self._action, self.is_done = steps, action, False

    def before_task_step(self, task: Any) -> None:
        if not self.is_done:
            self._left -= 1
            if self._left <= 0:
                self.is_done = True
                self._action()


@tool
async def pay(to: str) -> str:
    """Pay."""
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    return f"paid {to}"


@tool(read_only=True)
def weigh(load: int) -> int:
    """Weigh, in a thread."""
    return load


def respond(request: Request) -> object:
    """Ask for two rounds of calls, then answer, whatever became of them."""
    rounds = sum(bool(message.tool_calls) for message in request.messages)
    if rounds == 0:
        return ["First", tool_call("pay", to="Ada"), tool_call("weigh", load=5)]
    return tool_call("pay", to="Bob") if rounds == 1 else "All is done."


def agent_on(store: Store, *, lease: float = 60.0) -> Agent:
    """Return an Agent whose run has two rounds of calls."""
    return Agent(FakeModel(respond), tools=[pay, weigh], store=store, lease=lease)


def connections_out(store: Store) -> int:
    """Return how many connections are not back in the pool."""
    if not isinstance(store, SQLStore):
        return 0
    pool: Any = store._databases.here().engine.pool
    out: int = pool.checkedout()
    return out
