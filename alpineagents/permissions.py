"""
Permissions: rules that decide about every call before any tool of a turn runs.

A rule is a function of a `ToolRequest` that returns `Allow`, `Deny`, `Ask`, or None where it has nothing to say;
`allow`, `deny` and `ask` make the common ones. A denial of any rule counts first, then the first rule in order that
says something. With rules given, a call that none of them allows is refused, and so is one about which a rule fails.
"""

from __future__ import annotations

import fnmatch
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from pydantic import JsonValue

from alpineagents.errors import ConfigError, said
from alpineagents.events import Always
from alpineagents.messages import ToolCall
from alpineagents.state import State
from alpineagents.tools.base import Tool
from alpineagents.values import storable

log = logging.getLogger("alpineagents")

NOBODY = "permissions"
"""Who refuses a call that no rule allows."""

MAX_EXPIRES_IN = 10 * 365 * 86_400
"""Seconds that a question may wait: far more, and the instant at which it is over has no date."""


@dataclass(frozen=True, slots=True)
class Allow:
    """
    The call may be made.

    Attributes:
        args: all arguments, instead of the model's; None leaves them as they are.
        always: in a person's answer, `"state"` allows every later call of this tool in this State as well, `"all"` in
            every State of the store.
    """

    args: Mapping[str, JsonValue] | None = field(default=None, kw_only=True)
    always: Always = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.args is not None:
            if not isinstance(self.args, Mapping):
                kind = type(self.args).__name__
                raise ConfigError(f"args is a dict of all arguments, not a {kind}: Allow(args={{'amount': 1}})")
            object.__setattr__(self, "args", storable(dict(self.args), "args"))
        if self.always not in get_args(Always):
            raise ConfigError(f'always={self.always!r} is neither "state" nor "all": Allow(always="state")')


@dataclass(frozen=True, slots=True)
class Deny:
    """
    The call is refused.

    Attributes:
        reason: told to the model.
        stop: end the run, with `StoppedByPermission`; no call of the turn is made then.
    """

    reason: str
    stop: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise ConfigError(f"reason={self.reason!r:.80} is not a text for the model: Deny('it is too much')")


@dataclass(frozen=True, slots=True)
class Ask:
    """
    A person decides.

    Attributes:
        question: what they are asked; None for a plain one.
        expires_in: seconds until the call counts as denied, ten years at most; None for never.
    """

    question: str | None = None
    expires_in: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.question is not None and not isinstance(self.question, str):
            raise ConfigError(f"question={self.question!r:.80} is not a text: Ask('Pay this?', expires_in=3600)")
        seconds = self.expires_in
        if seconds is not None and (not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_EXPIRES_IN):
            raise ConfigError(
                f"expires_in={seconds!r} is not a number of seconds, ten years at most: Ask(expires_in=3600)"
            )


Decision = Allow | Deny | Ask


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """
    A call to decide about; a rule looks at it and changes nothing.

    Attributes:
        call: what the model asked for.
        tool: the tool, with its hints such as `read_only` as they are for this call.
        values: the arguments as the tool will get them, defaults left out.
        state: the State that the call belongs to.
    """

    call: ToolCall
    tool: Tool
    values: Mapping[str, object]
    state: State = field(repr=False)

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call.name

    @property
    def args(self) -> Mapping[str, JsonValue]:
        """The arguments as the model wrote them."""
        return self.call.args


RuleFunction = Callable[[ToolRequest], Decision | Awaitable[Decision | None] | None]
Rule = RuleFunction | Decision
"""A function of a call, sync or async; or a decision, which is the same for every call."""

Predicate = Callable[[ToolRequest], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class _Match:
    """A decision for the calls that have one of the names, all of the hints, and fulfil the predicate."""

    decision: Decision
    names: tuple[str, ...]
    hints: tuple[tuple[str, bool], ...]
    when: Predicate | None

    async def __call__(self, request: ToolRequest) -> Decision | None:
        if self.names and not any(fnmatch.fnmatchcase(request.name, name) for name in self.names):
            return None
        if any(getattr(request.tool, hint) != wanted for hint, wanted in self.hints):
            return None
        if self.when is not None:
            holds = self.when(request)
            if not (await holds if inspect.isawaitable(holds) else holds):
                return None
        return self.decision

    def __repr__(self) -> str:
        parts = [*map(repr, self.names), *(f"{hint}={wanted}" for hint, wanted in self.hints)]
        parts += [f"when={_named(self.when)}"] if self.when is not None else []
        return f"{type(self.decision).__name__.lower()}({', '.join(parts)})"


def allow(
    *names: str,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    when: Predicate | None = None,
) -> RuleFunction:
    """
    Allow calls.

    Args:
        names: of the tools, such as `"read_*"`; none means every tool.
        read_only, destructive, idempotent, open_world: only calls of which the tool says so, or with False does not.
        when: only calls for which this function of the ToolRequest, sync or async, is true.

    Raises:
        ConfigError: a name is no text, a hint no bool, or `when` no function.

    Example:
        >>> allow("read_*", read_only=True)
        allow('read_*', read_only=True)
    """
    return _match(Allow(), names, when, _hints(read_only, destructive, idempotent, open_world))


def deny(
    *names: str,
    reason: str = "this is not allowed",
    stop: bool = False,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    when: Predicate | None = None,
) -> RuleFunction:
    """
    Refuse calls; which ones, say the same settings as those of `allow`.

    Args:
        reason: told to the model.
        stop: end the run, with `StoppedByPermission`.

    Example:
        >>> deny("delete_*", reason="nothing is deleted here")
        deny('delete_*')
    """
    return _match(Deny(reason, stop=stop), names, when, _hints(read_only, destructive, idempotent, open_world))


def ask(
    *names: str,
    question: str | None = None,
    expires_in: float | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    when: Predicate | None = None,
) -> RuleFunction:
    """
    Let a person decide about calls; which ones, say the same settings as those of `allow`.

    Args:
        question: what they are asked.
        expires_in: seconds until a call counts as denied, ten years at most; None for never.

    Example:
        >>> ask("pay", when=lambda call: call.args["amount"] > 100, expires_in=3600)
        ask('pay', when=<lambda>)
    """
    decision = Ask(question, expires_in=expires_in)
    return _match(decision, names, when, _hints(read_only, destructive, idempotent, open_world))


def _hints(*wanted: bool | None) -> tuple[tuple[str, bool], ...]:
    named = tuple(zip(("read_only", "destructive", "idempotent", "open_world"), wanted, strict=True))
    for hint, value in named:
        if value is not None and not isinstance(value, bool):
            # No tool says so of itself: a denial would match no call, and let all of them through.
            raise ConfigError(f"{hint}={value!r:.80} of a rule is neither True nor False: allow({hint}=True)")
    return tuple((hint, value) for hint, value in named if value is not None)


def _match(
    decision: Decision, names: tuple[str, ...], when: Predicate | None, hints: tuple[tuple[str, bool], ...]
) -> RuleFunction:
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError('a rule names tools by texts: allow("read_*"), or a predicate: allow(when=is_small)')
    if when is not None and not callable(when):
        raise ConfigError(f'when={when!r:.80} is not a function of the call: ask("pay", when=lambda call: …)')
    return _Match(decision, names, hints, when)


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What the rules together say of a call.

    Attributes:
        by: the rule that decided.
    """

    decision: Decision
    by: str


class Permissions:
    """
    The rules of an Agent.

    Args:
        rules: one or several.

    Raises:
        ConfigError: one is no rule.
    """

    def __init__(self, rules: Rule | Iterable[Rule]) -> None:
        if callable(rules) or isinstance(rules, (Allow, Deny, Ask)):
            rules = (rules,)
        if isinstance(rules, (str, bytes)) or not isinstance(rules, Iterable):
            raise ConfigError(f"permissions={rules!r:.80} is no rule: permissions=[allow(read_only=True), ask()]")
        self.rules: tuple[Rule, ...] = tuple(rules)
        for rule in self.rules:
            _check(rule)

    @property
    def digest(self) -> str:
        """What names these rules: their names and settings, not the code of functions."""
        return hashlib.sha256("\n".join(map(_written, self.rules)).encode()).hexdigest()[:16]

    async def decide(self, request: ToolRequest) -> Verdict:
        """Return what counts: the first denial, else the first that a rule says, else what the tool itself asks for."""
        first: Verdict | None = None
        for rule in self.rules:
            verdict = await _apply(rule, request)
            if verdict is not None and isinstance(verdict.decision, Deny):
                return verdict
            first = first or verdict
        if first is None and request.tool.needs_approval:
            return Verdict(Ask(), f"tool {request.name}")
        return first or Verdict(Deny("no rule allows it"), NOBODY)


async def _apply(rule: Rule, request: ToolRequest) -> Verdict | None:
    by = f"rule {_named(rule)}"
    if not callable(rule):
        return Verdict(rule, by)
    try:
        decision = rule(request)
        if inspect.isawaitable(decision):
            decision = await decision
    except Exception as error:
        # Whatever it would have said, it did not say that the call is allowed.
        log.exception("%s failed; the call %s is refused", by, request.call.id)
        return Verdict(Deny(f"the rule failed with {type(error).__name__}: {said(error, 500)}"), by)
    if decision is None:
        return None
    if not isinstance(decision, (Allow, Deny, Ask)):
        given = f"the rule returned {decision!r:.80}, where Allow, Deny, Ask or None is due"
        return Verdict(Deny(given), by)
    if isinstance(decision, Allow) and decision.always:
        return Verdict(Deny("the rule returned Allow(always=…), which is for a person's answer"), by)
    return Verdict(decision, by)


def _check(rule: object) -> None:
    if isinstance(rule, (Allow, Deny, Ask)):
        return
    if isinstance(rule, type) and issubclass(rule, (Allow, Deny, Ask)):
        raise ConfigError(f"permissions has the class {rule.__name__}; write a decision: {rule.__name__}(…)")
    if not callable(rule):
        raise ConfigError(
            f"{rule!r:.80} is no rule; a rule is a function of the call: permissions=[allow(read_only=True), ask()]"
        )
    try:
        inspect.signature(rule).bind(None)
    except TypeError as error:
        raise ConfigError(f"the rule {_named(rule)} must take one argument, the call: {error}") from None
    except ValueError:
        pass  # a builtin that does not tell its parameters


def _named(rule: object) -> str:
    return repr(rule) if isinstance(rule, _Match) else getattr(rule, "__qualname__", None) or type(rule).__qualname__


def _written(rule: object) -> str:
    """Write a rule out with all that it says, as far as it is not code."""
    if isinstance(rule, _Match):
        return f"{rule!r}: {rule.decision!r}"
    return repr(rule) if isinstance(rule, (Allow, Deny, Ask)) else f"{getattr(rule, '__module__', '')}.{_named(rule)}"
