"""
A person for tests, who needs no keyboard.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio.lowlevel
from pydantic import JsonValue

from alpineagents.approvals import PendingApproval
from alpineagents.errors import ConfigError
from alpineagents.permissions import Allow, Deny

T = TypeVar("T")

Verdict = Allow | Deny | bool


class FakeHuman:
    """
    A person who decides and answers as was prepared.

    Args:
        decisions: what they decide, in order: each `Allow()`, `Deny("…")`, True, False, an exception that is raised, or
            a function of the request that gives one of these, sync or async; or one such function for every request.
        answers: what they answer, in order: each a JSON value, an exception, or a function of the question; or one
            such function for every question.
        name: as the history names them.

    Attributes:
        requests: every call they were asked about.
        questions: every question they were asked.

    Example:
        >>> from alpineagents import Agent, tool
        >>> from alpineagents.testing import FakeModel, tool_call
        >>> @tool(needs_approval=True)
        ... def pay(amount: int) -> str:
        ...     "Pay an amount."
        ...     return f"paid {amount}"
        >>> human = FakeHuman([Deny("too much")])
        >>> model = FakeModel([tool_call("pay", amount=82_000), "I see."])
        >>> Agent(model, tools=[pay], human=human).run_sync("Pay")
        'I see.'
        >>> human.requests[0].args
        {'amount': 82000}
    """

    def __init__(
        self,
        decisions: Sequence[Verdict | BaseException | Callable[[PendingApproval], Verdict | Awaitable[Verdict]]]
        | Callable[[PendingApproval], Verdict | Awaitable[Verdict]] = (),
        *,
        answers: Sequence[JsonValue | BaseException | Callable[[str], JsonValue | Awaitable[JsonValue]]]
        | Callable[[str], JsonValue | Awaitable[JsonValue]] = (),
        name: str = "human",
    ) -> None:
        if isinstance(answers, str):
            raise ConfigError(f"answers is a list: FakeHuman(answers=[{answers!r}])")
        if isinstance(decisions, (Allow, Deny, bool)):
            raise ConfigError(f"decisions is a list: FakeHuman([{decisions!r}])")
        self.name = name
        self.requests: list[PendingApproval] = []
        self.questions: list[str] = []
        self._decisions = decisions if callable(decisions) else list(decisions)
        self._answers = answers if callable(answers) else list(answers)

    async def approve(self, request: PendingApproval) -> Verdict:
        """
        Give the next decision.

        Raises:
            ConfigError: there is none left.
        """
        self.requests.append(request)
        decision: Verdict = await _next(self._decisions, request, "FakeHuman([…])")
        return decision

    async def ask(self, question: str) -> JsonValue:
        """
        Give the next answer.

        Raises:
            ConfigError: there is none left.
        """
        self.questions.append(question)
        answer: JsonValue = await _next(self._answers, question, "FakeHuman(answers=[…])")
        return answer

    def __repr__(self) -> str:
        return f"<FakeHuman {self.name!r} requests={len(self.requests)} questions={len(self.questions)}>"


async def _next(prepared: Any, asked: object, where: str) -> Any:
    await anyio.lowlevel.checkpoint()
    if not callable(prepared) and not prepared:
        raise ConfigError(f"FakeHuman has nothing left to say to {asked!r:.200}: add it to {where}")
    item = prepared if callable(prepared) else prepared.pop(0)
    if callable(item):
        item = item(asked)
        if inspect.isawaitable(item):
            item = await item
    if isinstance(item, BaseException):
        raise item
    return item
