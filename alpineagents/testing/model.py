"""
A model that gives prepared replies, for tests of agents.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio.lowlevel

from alpineagents import clock
from alpineagents.context import tokens_of
from alpineagents.errors import ConfigError
from alpineagents.messages import Message, RawBlock, Reply, Request, TextBlock, ToolCall
from alpineagents.models.base import Delta, Emit
from alpineagents.usage import Usage
from alpineagents.values import storable

Block = str | ToolCall | RawBlock
Item = Block | Sequence[Block] | BaseException | Reply
Answer = Item | Callable[[Request], Item | Awaitable[Item]]


def tool_call(name: str, /, **args: Any) -> ToolCall:
    """
    Make a call for a FakeModel to ask for.

    Raises:
        ValueNotStorableError: an argument is not JSON.

    Example:
        >>> tool_call("add", a=1, b=2).args
        {'a': 1, 'b': 2}
    """
    return ToolCall(id=f"call_{clock.new_id()[:12]}", name=name, args={k: storable(v, k) for k, v in args.items()})


class FakeModel:
    """
    A model that needs no key and no network.

    Args:
        replies: what it replies, in order: each a text, a call, a list of both, an exception that it raises, a Reply,
            or a function of the Request that gives one of these; or one such function that answers every time.
        name: its name.
        context_tokens: how many tokens its window holds; None for one that does not say so.

    Attributes:
        requests: every Request it got.

    Raises:
        ConfigError: one of the replies is none.

    Example:
        >>> from alpineagents import Agent, tool
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> model = FakeModel([tool_call("add", a=1, b=2), "It is 3."])
        >>> Agent(model, tools=[add]).run_sync("What is 1 + 2?")
        'It is 3.'
        >>> model.requests[1].messages[-1].tool_results[0].text
        '3'
    """

    def __init__(
        self,
        replies: Sequence[Answer] | Callable[[Request], Item | Awaitable[Item]],
        *,
        name: str = "fake",
        context_tokens: int | None = None,
    ) -> None:
        always = replies if callable(replies) and not isinstance(replies, type) else None
        if always is None and not _is_list(replies):
            raise ConfigError(f"FakeModel takes a list of replies, or one function: FakeModel([{replies!r:.200}])")
        self.name = name
        self.context_tokens = context_tokens
        self.requests: list[Request] = []
        self._always = always
        self._replies: list[Answer] = [] if callable(replies) else list(replies)
        for place, item in enumerate(self._replies):
            if not callable(item) or isinstance(item, type):
                _check(item, f"reply {place} of FakeModel")
        # What messages and tools take, by identity: `requests` keeps them all, and a long context is counted once.
        self._counted: dict[object, int] = {}

    @property
    def remaining(self) -> int:
        """How many replies are left."""
        return len(self._replies)

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Give the next reply.

        Raises:
            ConfigError: there is none left, or a function gave back what is none.
        """
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        if self._always is None and not self._replies:
            raise ConfigError(
                f"FakeModel was asked {len(self.requests)} times and has no reply left: add one to FakeModel([…])"
            )
        item: Any = self._always or self._replies.pop(0)
        if callable(item):
            function, item = item, item(request)
            if inspect.isawaitable(item):
                item = await item
            _check(item, f"what {getattr(function, '__qualname__', function)} gave back to FakeModel")
        if isinstance(item, BaseException):
            raise item
        reply = item if isinstance(item, Reply) else self._reply(item, request)
        show(reply, emit)
        return reply

    def _reply(self, item: Block | Sequence[Block], request: Request) -> Reply:
        blocks = [item] if isinstance(item, (str, ToolCall, RawBlock)) else list(item)
        content = [TextBlock(text=block) if isinstance(block, str) else block for block in blocks]
        message = Message(role="assistant", content=tuple(content))
        told = (request.system, *map(id, request.tools))
        if told not in self._counted:
            self._counted[told] = tokens_of((), request.system, request.tools)
        read = self._counted[told] + sum(map(self._tokens_of, request.messages))
        usage = Usage(input_tokens=read, output_tokens=tokens_of([message]), requests=1)
        return Reply(
            message=message,
            usage=usage,
            stop_reason="tool_use" if message.tool_calls else "end_turn",
            model=self.name,
        )

    def _tokens_of(self, message: Message) -> int:
        tokens = self._counted.get(id(message))
        if tokens is None:
            tokens = self._counted[id(message)] = tokens_of([message])
        return tokens

    async def aclose(self) -> None:
        """Do nothing: it holds nothing open."""

    def __repr__(self) -> str:
        return f"<FakeModel {self.name!r} requests={len(self.requests)} remaining={self.remaining}>"


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _check(item: object, named: str) -> None:
    whole = () if _is_list(item) else (BaseException, Reply)
    for block in cast("Sequence[object]", item) if _is_list(item) else [item]:
        if isinstance(block, (str, ToolCall, RawBlock, *whole)):
            continue
        hint = 'a text, a call such as tool_call("look", at="dawn"), a list of both, an exception, or a Reply'
        if isinstance(block, type) and issubclass(block, BaseException):
            hint = f'an exception itself, not its class: {block.__name__}("…")'
        elif isinstance(block, Message):
            hint = "Reply(message=…), or just its text"
        raise ConfigError(f"{named} is {item!r:.200}, where it can be {hint}")


def show(reply: Reply, emit: Emit | None) -> None:
    """Hand over the text of a reply word by word, as one that arrives does."""
    if emit is not None:
        for part in re.findall(r"\s*\S+\s*$|\s*\S+", reply.message.text):
            emit(Delta(text=part))
