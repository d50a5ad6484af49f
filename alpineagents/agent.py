"""
The Agent: settings only. It is never saved and never changed by a run, so one Agent serves any number of runs at once.

The file is long on purpose: it is the one page on which a user finds every setting and every call. What a call does is
in the modules below it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from types import MappingProxyType, NoneType
from typing import Any, Generic, Self, cast, get_args, overload

from pydantic import JsonValue
from typing_extensions import TypeVar

from alpineagents.answers import ask_beside, shape_answer
from alpineagents.approvals import served_state_id
from alpineagents.context import measured, split, tokens_of
from alpineagents.errors import ConfigError, EventOrderError, StateConflictError, SyncInsideLoopError
from alpineagents.events import AgentInfo
from alpineagents.human import Human
from alpineagents.human import ask as ask_person
from alpineagents.loop import Loop, default_loop
from alpineagents.messages import Message, Reply
from alpineagents.models.base import Model, window_of
from alpineagents.output import Shape
from alpineagents.permissions import Permissions, Rule
from alpineagents.repair import OnUnknown
from alpineagents.reporter import Reporter, reported
from alpineagents.runner import Item, Run, current, repeat, waiting_for_approval
from alpineagents.snapshot import still_open
from alpineagents.state import State, check_id
from alpineagents.stopped import Stopped, StoppedByUntil
from alpineagents.stores.base import Store
from alpineagents.stream import StreamBlock, streamed
from alpineagents.subagents import Caller, run_child, subagent_tool
from alpineagents.sync import run_in_portal, run_sync
from alpineagents.tools import Tool, ToolContext, toolbox
from alpineagents.turn import ask_model, compact_context, make_calls, next_request

T = TypeVar("T")
OutputT = TypeVar("OutputT", default=JsonValue)
"""What a run gives back: JSON, or a value of the type that `output` names."""


class Agent(Generic[OutputT]):
    """
    A model with tools, a loop, and a store that every step is saved in.

    Args:
        model: a Model, or its name such as `"claude-sonnet-5"`, `"gpt-5"`, `"ollama/llama3"`.
        system: the system prompt.
        tools: functions made with `@tool`, plain functions with type hints, or Agents, each a tool under its `name`.
        loop: what one turn is and when to stop.
        permissions: a rule or several that decide about each call, see `alpineagents.permissions`; with None each call
            is made, after an approval where its tool says `needs_approval`.
        store: where States are saved as they run; None keeps them in memory.
        human: a person at hand, asked while the run goes on; with None a call that needs an approval ends the run.
        output: what the answer is to be: a pydantic model or another type. A model that misses it is told what was
            wrong, three times at most. The run gives back a value of the type, and the State keeps it as JSON.
        reporter: called with each item of each run, as `stream` gives them: an async function in the event loop, any
            other in a thread of its own. The run does not wait for it.
        name: shown in lists; as a tool of another Agent, what its model calls it by.
        description: what the model of another Agent is told of this one, as a tool.
        on_unknown: what becomes of a call that a dead process had started, where the tool is not `read_only`,
            `idempotent` or `transaction`: `"report"` tells the model that the outcome is unknown, `"retry"` makes it
            again, `"ask"` waits for a person.
        lease: seconds for which a run owns its State without a sign of life; after a crash, the State can be run again
            when they are over. A run in good health renews it, however long its tools take.
        max_subagents: how many Agents work for one run at the same time; further ones wait for their turn.

    Raises:
        ConfigError: one of the settings cannot work.
        AuthError: the model's key is missing.

    Example:
        >>> from alpineagents.testing import FakeModel
        >>> agent = Agent(FakeModel(["It is 4,478 m high."]))
        >>> agent.run_sync("How high is the Matterhorn?")
        'It is 4,478 m high.'
    """

    def __init__(
        self,
        model: Model | str,
        *,
        system: str | None = None,
        tools: Iterable[Tool | Callable[..., Any] | Agent[Any]] = (),
        loop: Loop = default_loop,
        permissions: Rule | Iterable[Rule] | None = None,
        store: Store | None = None,
        human: Human | None = None,
        reporter: Reporter | None = None,
        output: type[OutputT] | None = None,
        name: str | None = None,
        description: str | None = None,
        on_unknown: OnUnknown = "report",
        lease: float = 60.0,
        max_subagents: int = 8,
    ) -> None:
        if not isinstance(loop, Loop):
            raise ConfigError("loop is a function made a loop: @loop(until=waiting_for_user, limit=50)")
        if store is not None and not isinstance(store, Store):
            raise ConfigError(f'store={store!r:.80} is not a Store: Agent(model, store=SQLStore("agents.db"))')
        if not all(isinstance(text, (str, NoneType)) for text in (system, name, description)):
            example = 'Agent(model, system="Be brief.", name="guide", description="Knows the way.")'
            raise ConfigError(f"system, name and description are texts: {example}")
        if human is not None and not isinstance(human, Human):
            raise ConfigError(f"human={human!r:.80} is no Human: an object with a `name`, `approve` and `ask`")
        if reporter is not None and not callable(reporter):
            raise ConfigError("reporter is a function of each item: Agent(model, reporter=print)")
        if on_unknown not in get_args(OnUnknown):
            raise ConfigError(f"on_unknown={on_unknown!r} is not one of {', '.join(map(repr, get_args(OnUnknown)))}")
        if not isinstance(lease, (int, float)) or not 0 < lease < math.inf:
            raise ConfigError(f"lease={lease!r} is not a number of seconds: Agent(model, lease=60.0)")
        if type(max_subagents) is not int or max_subagents < 1:
            raise ConfigError(f"max_subagents={max_subagents!r} is not a number of runs: Agent(model, max_subagents=8)")
        if isinstance(model, str):
            # A provider is imported where one is named.
            from alpineagents.models import resolve_model

            model = resolve_model(model)
        self.model: Model = model
        if not isinstance(self.model, Model):
            raise ConfigError(f'{model!r:.80} is not a model: Agent("claude-sonnet-5"), or an object with `respond`')
        self.system = system
        self.tools: Mapping[str, Tool] = MappingProxyType(toolbox(tools))
        for tool in self.tools.values():
            if tool.transaction and (store is None or not store.has_transactions):
                raise ConfigError(
                    f"{tool.name!r} is a transaction tool, so its result must be kept in a database on disk: "
                    'Agent(model, tools=[…], store=SQLStore("agents.db"))'
                )
        self.loop = loop
        self.permissions = None if permissions is None else Permissions(permissions)
        self.human = human
        self.store = store
        self.reporter = reporter
        self.output = output
        self.shape: Shape[OutputT] | None = Shape.of(output)
        self.name, self.description = name, description
        self.on_unknown: OnUnknown = on_unknown
        self.lease = float(lease)
        self.max_subagents = max_subagents

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            raise AttributeError(f"an Agent does not change; make another: agent.copy({name}=…)")
        super().__setattr__(name, value)

    def copy(self, **changes: Any) -> Self:
        """
        Return an Agent with other settings.

        Example:
            >>> from alpineagents.testing import FakeModel
            >>> Agent(FakeModel([]), name="guide").copy(system="Be brief.")
            <Agent 'guide' model='fake'>
        """
        settings = {
            "model": self.model,
            "system": self.system,
            "tools": tuple(self.tools.values()),
            "loop": self.loop,
            "permissions": None if self.permissions is None else self.permissions.rules,
            "human": self.human,
            "store": self.store,
            "reporter": self.reporter,
            "output": self.output,
            "name": self.name,
            "description": self.description,
            "on_unknown": self.on_unknown,
            "lease": self.lease,
            "max_subagents": self.max_subagents,
        }
        return type(self)(**{**settings, **changes})

    def describe(self) -> AgentInfo:
        """Return what a State remembers of the Agent that runs it."""
        return self._info

    @cached_property
    def _info(self) -> AgentInfo:
        digests = {
            name: hashlib.sha256(tool.spec.model_dump_json().encode()).hexdigest()[:16]
            for name, tool in self.tools.items()
        }
        rules = None if self.permissions is None else self.permissions.digest
        return AgentInfo(name=self.name, model=self.model.name, system=self.system, tools=digests, permissions=rules)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        tools = f" tools={list(self.tools)}" if self.tools else ""
        return f"<Agent{name} model={self.model.name!r}{tools}>"

    # -------------------------------------------------------------------------------------------- run

    async def run(
        self, prompt: str | Message | State, *, id: str | None = None, context: ToolContext | None = None
    ) -> OutputT | None:
        """
        Run the loop until it stops, saving each step.

        Args:
            prompt: a text or Message starts a new State; a State goes on.
            id: of the new State.
            context: that of the tool that starts this run: its State is a child of the one that the tool serves.

        Returns:
            The answer: what `finish` was given, else the model's last words, and with `output` a value of that type.
            None if the run stopped before there was one, which `state.stopped` explains.

        Raises:
            StateExistsError: the store has a State of that id; no model was asked.
            StateBusyError: another run owns the State; no model was asked.
            StateConflictError: the State moved on in the store, or another run took it.
            ModelError: the model gave no reply.
            OutputError: the answer is not what `output` asks for, after three corrections.
            Exception: what a tool raised that is no ToolError.
        """
        if context is None:
            state = self._state_for(prompt, id)
            await self._run(state, _unread)
        elif id is None and not isinstance(prompt, State):
            state = await run_child(self, self._message(prompt), context, self._run_child)
        else:
            raise ConfigError("a child's id follows from the call: await agent.run('…', context=context)")
        if self.shape is None or state.answer is None:
            return cast(OutputT | None, state.answer)
        return self.shape.restored(state.answer)

    async def resume(self, id: str, prompt: str | Message | None = None, *, tail: bool = False) -> OutputT | None:
        """
        Load a State, add the message, run: continue a saved State in one call.

        Where a process died, this goes on where it stopped. A message that waits unanswered at the end of the State is
        not added a second time, so that a call that failed can be repeated as it was.

        Args:
            prompt: the next message; None goes on without one.
            tail: load the State only from the last change of its context on, as `store.load` does.

        Raises:
            StateNotFoundError: there is no such State.
            Exception: as `run` does.
        """
        if self.store is None:
            raise ConfigError(
                'this Agent saves nothing, so there is nothing to resume: Agent(model, store=SQLStore("agents.db"))'
            )
        message = None if prompt is None else self._message(prompt)
        while True:
            state = await self.store.load(id, tail=tail)
            loaded = state.revision
            if message is not None and not _waits(message, state):
                state.add_message(message)
            try:
                return await self.run(state)
            except StateConflictError:
                # Another run ended between the two; this one has not begun, and knows of the State no more than its id.
                if state.saved_revision > loaded:
                    raise

    def stream(self, prompt: str | Message | State, *, id: str | None = None) -> StreamBlock:
        """
        Run in the background and hand out every Event as it is saved, and deltas as they come.

        Leaving the block ends the run, recorded as cancelled if it was not over.

        Raises:
            Exception: as `run` does, at the end of the items.

        Example:
            >>> import anyio
            >>> from alpineagents.testing import FakeModel
            >>> async def main():
            ...     async with Agent(FakeModel(["Good day."])).stream("Hello") as items:
            ...         kinds = [item.kind async for item in items]
            ...     return kinds[-2:]
            >>> anyio.run(main)
            ['model_replied', 'run_stopped']
        """
        state = self._state_for(prompt, id)
        return StreamBlock(streamed(state, partial(self._run, state)))

    def as_tool(self) -> Tool:
        """
        Return the tool that this Agent is in `tools=` of another: it takes a prompt, and gives back the answer.

        Raises:
            ToolDefinitionError: the Agent has no name, or one that no model takes.

        Example:
            >>> from alpineagents.testing import FakeModel
            >>> guide = Agent(FakeModel([]), name="guide", description="Knows the way.")
            >>> guide.as_tool().copy(name="ask_guide", needs_approval=True)
            Tool(ask_guide(prompt), idempotent=True, needs_approval=True)
        """
        return subagent_tool(self, self._run_child)

    async def _run_child(self, state: State, caller: Caller) -> None:
        await self._run(state, _unread, caller)

    async def _run(self, state: State, emit: Callable[[Item], None], caller: Caller | None = None) -> None:
        async def body(run: Run) -> Stopped:
            if self.shape is not None:
                # A dead run may have left an answer that nobody has read.
                await shape_answer(self, run, self.shape)
            return await repeat(self.loop, run)

        if not state.messages and not state.pending_calls:
            raise ConfigError(f'{state!r} has no message to answer: state.add_message(Message.user("…"))')
        if caller is None:
            _refuse_open_child(state)
            if self.store is not None:
                self.store.check_scope(state)
        async with reported(self.reporter) as reports:

            def tell(item: Item) -> None:
                emit(item)
                reports.tell(item)

            await Run(self, state, tell, reports.told, caller).execute(body, again=True)

    async def think(self, state: State) -> Reply:
        """
        Ask the model for the next message; the first half of a turn.

        Raises:
            ModelError: there is no reply.
            EventOrderError: calls are open; make them first.
        """
        _refuse_open_calls(state, "model_requested")
        replies: list[Reply] = []

        async def body(run: Run) -> Stopped:
            reply = await ask_model(self, run)
            corrected = None if self.shape is None else await shape_answer(self, run, self.shape)
            replies.append(corrected or reply)
            return StoppedByUntil(name="think")

        await self._within(state, body)
        return replies[0]

    @overload
    async def ask(self, state: State, prompt: str) -> str: ...

    @overload
    async def ask(self, state: State, prompt: str, *, returns: type[T]) -> T: ...

    async def ask(self, state: State, prompt: str, *, returns: type[Any] | None = None) -> Any:
        """
        Ask the model a question beside the conversation, which it knows and which the question does not enter.

        Args:
            returns: what the answer is to be: a pydantic model or another type; a text otherwise.

        Raises:
            OutputError: the answer is not what `returns` asks for, after three corrections.
            EventOrderError: calls are open; make them first.
            ModelError: there is no reply.

        Example:
            >>> import anyio
            >>> from alpineagents.testing import FakeModel
            >>> async def main():
            ...     state = State(messages=[Message.user("The Matterhorn is 4,478 m high.")])
            ...     return await Agent(FakeModel(['{"value": 4478}'])).ask(state, "How high?", returns=int)
            >>> anyio.run(main)
            4478
        """
        shape = Shape.of(returns)
        _refuse_open_calls(state, "asked")
        answers: list[Any] = []

        async def body(run: Run) -> Stopped:
            answers.append(await ask_beside(self, run, prompt, shape))
            return StoppedByUntil(name="ask")

        await self._within(state, body)
        return answers[0]

    async def use_tools(self, state: State) -> None:
        """
        Make the open calls; the second half of a turn.

        Results are saved one by one as they come. A call that needs an approval waits, and the run stops.

        Raises:
            Exception: what a tool raised that is no ToolError; its siblings keep their results.
        """

        async def body(run: Run) -> Stopped:
            await make_calls(self, run)
            return run.stopped or waiting_for_approval(run) or StoppedByUntil(name="use_tools")

        await self._within(state, body)

    async def compact(self, state: State, *, instructions: str | None = None, keep: int = 4) -> str | None:
        """
        Put a summary that the model writes in the place of the context; the history keeps what it was.

        Args:
            instructions: what the summary is to mind, beyond what any should.
            keep: how many of the last messages stay as they are. No call is parted from its result, and what waits for
                an answer stays in any case.

        Returns:
            The summary; None where there is nothing that one could stand for, and no model was asked.

        Raises:
            EventOrderError: calls are open; make them first.
            ModelError: there is no summary; the context is as it was.
        """
        split(state.messages, keep)
        _refuse_open_calls(state, "context_changed")
        summaries: list[str | None] = []

        async def body(run: Run) -> Stopped:
            summaries.append(await compact_context(self, run, instructions, keep=keep))
            return StoppedByUntil(name="compact")

        await self._within(state, body)
        return summaries[-1]

    def context_tokens(self, state: State) -> int:
        """
        Return how many tokens the next request takes: as the provider counted them, and an estimate of what is new.
        """
        request = next_request(self, state)
        tokens, counted = measured(state.history, state.messages)
        if counted:
            return tokens + tokens_of(request.messages[counted:])
        return tokens_of(request.messages, request.system, request.tools)

    def context_used(self, state: State) -> float | None:
        """
        Return which part of the model's window the next request takes: 0 for nothing, 1 for all of it.

        Returns:
            None where the model does not say how large its window is, in an attribute `context_tokens`.

        Example:
            >>> from alpineagents.testing import FakeModel
            >>> agent = Agent(FakeModel([], context_tokens=100))
            >>> agent.context_used(State(messages=[Message.user("Which peaks are over 4,000 m?")]))
            0.12
        """
        window = window_of(self.model)
        return None if window is None else self.context_tokens(state) / window

    async def repeat(self, loop: Loop, state: State) -> Stopped:
        """
        Take the turns of a loop and return why they ended, as `await loop(agent, state)` does within another loop.

        Raises:
            Exception: as `run` does.
        """
        ends: list[Stopped] = []

        async def body(run: Run) -> Stopped:
            ends.append(await repeat(loop, run, self))
            return ends[-1]

        await self._within(state, body)
        return ends[-1]

    async def ask_human(self, state: State, question: str) -> JsonValue:
        """
        Ask the person at hand; question and answer are saved, and stay out of the context.

        Raises:
            ConfigError: the Agent has no `human`, or the question is empty.

        Example:
            >>> import anyio
            >>> from alpineagents.testing import FakeHuman, FakeModel
            >>> agent = Agent(FakeModel([]), human=FakeHuman(answers=["the upper hut"]))
            >>> anyio.run(agent.ask_human, State(), "Which hut?")
            'the upper hut'
        """
        answers: list[JsonValue] = []
        # What another question waits for, it waits for after this one as well, however that ends.
        waiting = state.stopped if state.status == "waiting" else None

        async def body(run: Run) -> Stopped:
            run.leaves_waiting = run.leaves_waiting or waiting is not None
            answers.append(await ask_person(self, run, question))
            return waiting or StoppedByUntil(name="ask_human")

        await self._within(state, body)
        return answers[0]

    async def _within(self, state: State, body: Callable[[Run], Any]) -> None:
        run = current(state)
        if run is not None:
            await body(run)
        else:
            async with reported(self.reporter) as reports:
                await Run(self, state, reports.tell, reports.told).execute(body)

    async def aclose(self) -> None:
        """Close the connections of the model. The store is its maker's to close."""
        await self.model.aclose()

    # -------------------------------------------------------------------------------------------- for scripts

    def run_sync(
        self, prompt: str | Message | State, *, id: str | None = None, context: ToolContext | None = None
    ) -> OutputT | None:
        """Do what `run` does, in a script; with `context`, in a sync tool."""
        if context is None or context.caller is None:
            return run_sync(self.run(prompt, id=id, context=context), called="run_sync", instead="await agent.run(…)")
        instead = "await agent.run(…, context=context)"
        if context.portal is None:
            raise SyncInsideLoopError("run_sync", instead)  # the context of an async tool
        run = partial(self.run, prompt, id=id, context=context)
        return run_in_portal(context.portal, run, called="run_sync", instead=instead)

    def resume_sync(self, id: str, prompt: str | Message | None = None, *, tail: bool = False) -> OutputT | None:
        """Do what `resume` does, in a script."""
        return run_sync(self.resume(id, prompt, tail=tail), called="resume_sync", instead="await agent.resume(…)")

    def _state_for(self, prompt: str | Message | State, id: str | None) -> State:
        if isinstance(prompt, State):
            if id is not None and id != prompt.id:
                raise ConfigError(f"the State has an id, {prompt.id!r}: leave id={id!r} out, or make State(id={id!r})")
            return prompt
        namespace = "" if self.store is None else self.store.namespace
        return State(id=None if id is None else check_id(id), namespace=namespace, messages=[self._message(prompt)])

    @staticmethod
    def _message(prompt: str | Message) -> Message:
        if isinstance(prompt, Message):
            return prompt
        if not isinstance(prompt, str):
            raise ConfigError(f"a {type(prompt).__name__} is no prompt: give a text, a Message or a State")
        return Message.user(prompt)


def _unread(_item: Item) -> None:
    """Take the items of a run that nobody streams."""


def _refuse_open_calls(state: State, kind: str) -> None:
    """Refuse before a run begins, since one that fails closes what it finds open."""
    if state.pending_calls:
        reason = still_open(state.snapshot().calls.values(), state.id)
        raise EventOrderError(state.id, kind, state.revision + 1, reason)


def _refuse_open_child(state: State) -> None:
    """Refuse to carry on alone what serves a call of another State: that one's rules bind it, and wait for its end."""
    parent_id = served_state_id(state)
    if parent_id is not None and (state.snapshot().run_id is not None or state.pending_calls):
        raise ConfigError(
            f"State {state.id!r} serves a call of State {parent_id!r}, which carries it on: "
            f"await agent.resume({parent_id!r})"
        )


def _waits(message: Message, state: State) -> bool:
    """Tell whether the message is the last one that was said and has no answer, whatever the model did since."""
    for earlier in (*reversed(state.snapshot().queued), *reversed(state.messages)):
        if earlier.is_plain and (earlier == message or not earlier.is_notice):
            return earlier == message
        if earlier.role == "assistant" and not earlier.tool_calls:
            return False
    return False
