"""
One run's life: claim the State, repair what a dead run left open, hold the State while the loop works, close.

Every way out is recorded: the loop's own end, an exception, a cancellation, a request to cancel. Only a run that has
lost its State to another records nothing more.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from alpineagents import clock
from alpineagents.errors import (
    AlpineAgentsError,
    ResumeWarning,
    StateBusyError,
    StateConflictError,
    StateNotFoundError,
    said,
)
from alpineagents.events import ApprovalDecided, Event, ParentCall, RunStarted, RunStopped
from alpineagents.journal import Journal
from alpineagents.loop import Loop
from alpineagents.models.base import Emitted
from alpineagents.repair import Step, closing, repairs
from alpineagents.shield import settled
from alpineagents.state import State
from alpineagents.stopped import (
    Stopped,
    StoppedByCancel,
    StoppedByError,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByPermission,
    StoppedByUntil,
    WaitingForApproval,
)
from alpineagents.stores.base import Store
from alpineagents.subagents import Caller, callers_above, close_waiting, with_children
from alpineagents.tools import Progress, Tool

if TYPE_CHECKING:
    from alpineagents.agent import Agent

log = logging.getLogger("alpineagents")

Item = Event | Emitted | Progress
"""What a reader of a run sees: each Event once it is saved, what a Model tells while it replies, how far calls are."""

Emit = Callable[[Item], None]

BEATS_PER_LEASE = 4
"""How often a lease is renewed while it lasts: a beat or two may fail before another run can take the State."""


_runs: weakref.WeakKeyDictionary[State, Run] = weakref.WeakKeyDictionary()


def current(state: State) -> Run | None:
    """Return the run that goes on with this very object, if there is one."""
    return _runs.get(state)


@dataclass(slots=True)
class Turns:
    """How many turns a loop has taken."""

    taken: int = 0


class Run:
    """
    A run that goes on; `agent.think` and `agent.use_tools` write through its journal.

    Args:
        emit: called with each item; it returns at once.
        shown: waits, within bounds, until whoever gets the items has had those emitted so far.
        caller: the call of another run that this one serves, in that one's store and under its lease.
    """

    def __init__(
        self,
        agent: Agent[Any],
        state: State,
        emit: Emit,
        shown: Callable[[], Awaitable[None]],
        caller: Caller | None = None,
    ) -> None:
        self.id = clock.new_id()
        self.agent, self.state, self.emit, self.shown, self.caller = agent, state, emit, shown, caller
        self.store: Store | None = agent.store if caller is None else caller.run.store
        self.lease: float = agent.lease if caller is None else caller.run.lease
        self.journal = Journal(state, self.store, run_id=self.id, lease=self.lease, saved=self._saved)
        # The calls that are made, or were started by a dead run, by id.
        self.callers: dict[str, Caller] = {}
        self.subagents = anyio.Semaphore(agent.max_subagents)
        # One person is asked one thing at a time.
        self.consulting: anyio.Lock = anyio.Lock() if caller is None else caller.run.consulting
        self._scope = anyio.CancelScope()
        self._beating = anyio.CancelScope()
        self._lost: StateConflictError | StateNotFoundError | None = None
        self._unserved_cancel_by: str | None = None
        self.turns, self.looping = Turns(), False
        # A rule or a person has ended the run; it stops after its turn.
        self.stopped: Stopped | None = None
        # The call that the person at hand is being asked about; cancelling the scope takes the question back.
        self.asking: tuple[str, anyio.CancelScope] | None = None
        self.leaves_waiting = False

    async def execute(self, body: Callable[[Run], Awaitable[Stopped]], *, again: bool = False) -> None:
        """
        Claim the State, await the body, record how it ended.

        Args:
            again: await the body once more where a message came in since it ended, so that none is left unanswered.

        Raises:
            StateBusyError: another run owns the State, in this process or in another.
            StateConflictError: another run took the State meanwhile.
            Exception: whatever the body raised.
        """
        if (other := current(self.state)) is not None:
            raise StateBusyError(self.state.id, other.id)
        self._warn_of_another_agent()
        _runs[self.state] = self
        self.state.run_id = self.id
        failure: BaseException | None = None
        try:
            await self._claim()
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._beat)
                    with self._scope:
                        failure = await self._body(body, again)
                    # Not the group's own scope: it holds this task too, and Python before 3.13 can take that for a
                    # cancellation from outside.
                    self._beating.cancel()
            finally:
                if not self._is_lost() and any(caller.children for caller in self.callers.values()):
                    await settled(self._close_waiting)
        finally:
            del _runs[self.state]
            self.state.run_id = None
        if failure := failure or self._lost:
            raise failure

    async def record_all(self, steps: Iterable[Step]) -> None:
        """Fold several Events in and save them in one append; results say what served their calls."""
        await self.journal.record_all(with_children(self.callers, steps))

    def calling(self, agent: Agent[Any], tool: Tool | None, call_id: str) -> Caller:
        """Return what a call is to the runs that serve it."""
        caller = self.callers.setdefault(call_id, Caller(self, agent, tool, call_id))
        caller.agent, caller.tool = agent, tool
        return caller

    async def _close_waiting(self) -> None:
        for caller in self.callers.values():
            await close_waiting(caller)

    def reporter(self) -> Callable[[Progress], None]:
        """Return what emits the progress of a tool, whatever thread it runs in; behind the end of the run nothing."""
        token, home = anyio.lowlevel.current_token(), threading.get_ident()

        def emit(item: Progress) -> None:
            if current(self.state) is self:
                self.emit(item)

        def report(item: Progress) -> None:
            if threading.get_ident() == home:
                emit(item)
                return
            with suppress(anyio.RunFinishedError):
                anyio.from_thread.run_sync(emit, item, token=token)

        return report

    def _warn_of_another_agent(self) -> None:
        before, now = self.state.saved_by, self.agent.describe()
        if before is not None and before != now:
            pairs = {name: (getattr(before, name), getattr(now, name)) for name in type(now).model_fields}
            changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            warnings.warn(ResumeWarning(self.state.id, changes), stacklevel=_outside())
        self.state.saved_by = None

    async def _claim(self) -> None:
        value = self.state.snapshot()
        about = self.agent.describe()
        # As it was found: a child and a fork say so of themselves with their first run.
        forked = self.state.is_new_fork
        try:
            told = {"agent": None if value.agent == about else about, "fork": self.state.id if forked else ""}
            self.journal.add(RunStarted, parent=self._parent(), **told)
            for call in value.calls.values():
                if call.starts and call.result is None:
                    tool = self.agent.tools.get(call.call.name)
                    await self.calling(self.agent, tool, call.call.id).load()
            await self.record_all(repairs(value, self.agent.tools, self.agent.on_unknown, forked=forked))
            if self.store is not None:
                await self.store.take_over_blobs(self.state)
            self._unserved_cancel_by = self.state.snapshot().unserved_cancel_by
        except BaseException:
            self.state.drop_unsaved(self.id)
            if self.state.snapshot().run_id == self.id:
                # The append was settled before the cancellation went on: the State is this run's, so it gives it up.
                await settled(self._close_cancelled)
            raise

    def _parent(self) -> ParentCall | None:
        if self.caller is None:
            return None
        parent = ParentCall(state_id=self.caller.run.state.id, call_id=self.caller.call_id)
        return None if self.state.snapshot().parent == parent else parent

    async def _body(self, body: Callable[[Run], Awaitable[Stopped]], again: bool) -> BaseException | None:
        # What the body raises is handed over instead of raised, since a task group would wrap it.
        try:
            if again and (by := self._unserved_cancel_by) is not None:
                await settled(partial(self._close, StoppedByCancel(by=by), _asked_by(by)))
                return None
            while True:
                stopped = await body(self)
                give_way = again and isinstance(stopped, (StoppedByUntil, StoppedByFinish))
                if await settled(partial(self.journal.end, stopped, give_way=give_way)):
                    return None
        except anyio.get_cancelled_exc_class():
            await settled(self._close_cancelled)
            raise
        except BaseException as error:  # noqa: BLE001  # every way out is recorded
            name = type(error).__name__
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                await settled(self._close_cancelled)
            else:
                failed = StoppedByError(error=name, message=said(error))
                await settled(lambda: self._close(failed, f"the run failed with {name}"))
            return error

    async def _close_cancelled(self) -> None:
        states = (self.state, *(above.run.state for above in callers_above(self.caller)))
        by = next((each.snapshot().cancelled_by for each in states if each.snapshot().cancelled_by is not None), None)
        reason = "the run was cancelled" if by is None else _asked_by(by)
        await self._close(StoppedByCancel(by=by or ""), reason)

    async def _close(self, stopped: Stopped, reason: str) -> None:
        if self._is_lost() or self.state.snapshot().run_id != self.id:
            return
        steps: Iterable[Step] = closing(self.state.snapshot(), stopped, reason)
        if self.leaves_waiting and (waiting := waiting_for_approval(self)):
            # Ended while a person was asked, with no tool under way: the question stays, for whoever goes on.
            steps = [(RunStopped, {"stopped": waiting})]
        try:
            await self.record_all(steps)
        except AlpineAgentsError as error:
            # The caller must see what ended the run, not this; the State keeps what is not saved.
            log.warning("the end of run %s of State %s could not be saved: %s", self.id, self.state.id, error)

    def _is_lost(self) -> bool:
        return self._lost is not None or self.journal.lost is not None

    async def _beat(self) -> None:
        if self.store is None:
            return
        with self._beating:
            await self._keep_beating()

    async def _keep_beating(self) -> None:
        while True:
            await anyio.sleep(self.lease / BEATS_PER_LEASE)
            try:
                await self.journal.renew()
            except (StateConflictError, StateNotFoundError) as error:
                self._lost = error
                self._scope.cancel()
                return
            except AlpineAgentsError as error:
                # The next append settles whether the State is still this run's; until then the work goes on.
                log.warning("the lease of run %s of State %s could not be renewed: %s", self.id, self.state.id, error)
            self._obey_cancel_request()

    def _obey_cancel_request(self) -> None:
        if self.state.snapshot().cancelled_by is not None:
            self._scope.cancel()

    def _saved(self, event: Event) -> None:
        self.emit(event)
        if event.kind == "cancel_requested":
            self._obey_cancel_request()
        if isinstance(event, ApprovalDecided) and event.child_id:
            for caller in self.callers.values():
                caller.heard = caller.heard or event.child_id in caller.waiting
        elif isinstance(event, ApprovalDecided) and self.asking is not None and self.asking[0] == event.call_id:
            self.asking[1].cancel()


def _asked_by(by: str) -> str:
    return f"{by or 'someone'} asked the run to stop"


def _outside() -> int:
    """Return the level, for the caller, of the first frame that is not the library's: the line that a warning names."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    return level


class MustStopError(BaseException):
    """
    Ends the turns of all loops around the one that met it: a rule has ended the run, or a person has to decide first.

    It is no Exception, so that what a loop of the user's catches does not hold it up.
    """

    def __init__(self, stopped: Stopped) -> None:
        self.stopped = stopped
        super().__init__(str(stopped))


async def repeat(loop: Loop, run: Run, agent: Agent[Any] | None = None) -> Stopped:
    """
    Repeat the loop's turn until it is to stop.

    A turn that a dead run left open is finished first: its calls are made before the model is asked again.

    Args:
        agent: who takes the turns; None for the one that runs.
    """
    agent = agent or run.agent
    if run.looping:
        stopped = await _take_turns(loop, agent, run, Turns())
        if isinstance(stopped, (WaitingForApproval, StoppedByPermission)):
            raise MustStopError(stopped)
        return stopped
    run.looping = True
    try:
        return await _take_turns(loop, agent, run, run.turns)
    except MustStopError as must:
        return must.stopped
    finally:
        run.looping = False


async def _take_turns(loop: Loop, agent: Agent[Any], run: Run, turns: Turns) -> Stopped:
    state = run.state
    if state.pending_calls:
        await agent.use_tools(state)
    while True:
        if stopped := run.stopped or await _stopped(loop, run):
            return stopped
        if turns.taken == loop.limit:
            return StoppedByLimit(turns=loop.limit)
        turns.taken += 1
        # Whatever its model and its tools do, a turn lets others have theirs.
        await anyio.lowlevel.checkpoint()
        await loop.turn(agent, state)


def waiting_for_approval(run: Run) -> WaitingForApproval | None:
    """Return that the State waits for a person, if it does, or a State that serves one of its calls."""
    own = tuple(call.call.id for call in run.state.snapshot().calls.values() if call.waits)
    children = {child_id: calls for caller in run.callers.values() for child_id, calls in caller.waiting.items()}
    call_ids = (*own, *(call_id for calls in children.values() for call_id in calls))
    return WaitingForApproval(call_ids=call_ids, children=children) if call_ids else None


async def _stopped(loop: Loop, run: Run) -> Stopped | None:
    state = run.state
    value = state.snapshot()
    if waiting := waiting_for_approval(run):
        return waiting
    if value.finished:
        return StoppedByFinish(answer=value.answer)
    if name := await loop.held(state):
        return StoppedByUntil(name=name)
    return None
