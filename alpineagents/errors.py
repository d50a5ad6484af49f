"""
Every error and warning of the library, sorted by what the caller can do about it.

    AlpineAgentsError
    ├── ConfigError                 something was built wrongly: mend the program
    │   └── ToolDefinitionError     a function that cannot be a tool
    ├── SyncInsideLoopError         a `_sync` call inside a running event loop: await the other name
    ├── ValueNotStorableError       a value that JSON cannot hold, refused where it enters
    ├── StateError                  about one State
    │   ├── StateIdError            an id that no State can have
    │   ├── StateNotFoundError
    │   ├── StateExistsError        a new State whose id is taken
    │   ├── StateConflictError      the State moved on since it was loaded: load it again
    │   ├── StateBusyError          another run owns the State: wait, or post a message
    │   ├── ApprovalError           a call that cannot be decided on: it does not wait, or no longer
    │   │   └── AlreadyDecidedError somebody decided before
    │   ├── EventOrderError         an Event that cannot follow the ones before it
    │   └── StateDamagedError       what is stored cannot be read back
    │       └── EventFormatError    it was written by a newer release
    ├── StoreError                  about the place where States are kept
    │   ├── StoreClosedError
    │   ├── StoreUnavailableError   no answer from the database in time: try again
    │   ├── StoreSchemaError        tables missing or of another release: run the command it names
    │   └── StoreFeatureError       this backend does not implement what was asked
    ├── ModelError                  about a model API
    │   ├── AuthError
    │   ├── RateLimitError
    │   ├── ContextTooLongError
    │   └── ProviderError
    ├── ToolError                   raised by a tool: told to the model, the run goes on
    │   └── ToolInputError          the arguments were wrong
    └── OutputError                 the model's answer does not have the shape asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpineagents.usage import Usage


class AlpineAgentsError(Exception):
    """The root of every error that this library raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # An error goes through a process pool as it is, whatever its constructor takes.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[BaseException], args: tuple[object, ...], attributes: dict[str, object]) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def said(error: BaseException, length: int = 2_000) -> str:
    """Return what an error says, cut; its own `__str__` may fail."""
    try:
        return str(error)[:length]
    except Exception:  # noqa: BLE001  # the author's code
        return "(its message cannot be read)"


class ConfigError(AlpineAgentsError, ValueError):
    """An Agent, a tool, a loop or a store was built from settings that cannot work."""


class ToolDefinitionError(ConfigError):
    """A function cannot be described to a model, such as one with a parameter without a type hint."""


class SyncInsideLoopError(AlpineAgentsError, RuntimeError):
    """A `_sync` call was made where an event loop runs; it would block the loop that it waits for."""

    def __init__(self, called: str, instead: str) -> None:
        self.called, self.instead = called, instead
        super().__init__(f"{called}() would block the event loop that runs here. Inside async code write: {instead}")


class ValueNotStorableError(AlpineAgentsError, TypeError):
    """
    A value cannot be stored as JSON without becoming another value.

    Attributes:
        path: where the value is, such as `extra_data['price']`.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} {reason}")


# ------------------------------------------------------------------------------------------------ one State


class StateError(AlpineAgentsError):
    """Something about one State; `state_id` says which."""

    def __init__(self, state_id: str, message: str) -> None:
        self.state_id = state_id
        super().__init__(message)


class StateIdError(StateError, ValueError):
    """An id that no State can have."""

    def __init__(self, state_id: object) -> None:
        shown = repr(state_id) if len(repr(state_id)) <= 80 else repr(state_id)[:77] + "..."
        super().__init__(
            str(state_id),
            f"{shown} cannot be the id of a State: use 1 to 128 letters (a-z, A-Z), digits, '_' and '-', "
            f'as in State(id="order-1042")',
        )


class StateNotFoundError(StateError, LookupError):
    """The store has no State with this id."""

    def __init__(self, state_id: str, *, revision: int | None = None, hint: str = "") -> None:
        self.revision = revision
        missing = "is not in the store" if revision is None else f"has no revision {revision}"
        super().__init__(state_id, f"State {state_id!r} {missing}. {hint or 'await store.list() shows what is there'}")


class StateExistsError(StateError):
    """A new State has an id that the store has already; nothing was written."""

    def __init__(self, state_id: str) -> None:
        super().__init__(
            state_id,
            f"State {state_id!r} is in the store already. To continue it: "
            f'await agent.resume({state_id!r}, "…"); to begin another: State() without an id',
        )


class StateConflictError(StateError):
    """
    The State moved on after it was loaded; nothing was written.

    Attributes:
        expected: the revision that the caller had folded up to.
        actual: the revision that the store has.
    """

    def __init__(self, state_id: str, expected: int, actual: int, *, hint: str = "") -> None:
        self.expected, self.actual = expected, actual
        super().__init__(
            state_id,
            f"State {state_id!r} is at revision {actual}, not at {expected}: another writer was first. "
            + (hint or f"Load it again and repeat the change: state = await store.load({state_id!r})"),
        )


class StateBusyError(StateError):
    """
    A run owns the State, so another cannot begin; no model was asked.

    Attributes:
        run_id: the run that owns it, where known.
    """

    def __init__(self, state_id: str, run_id: str | None = None) -> None:
        self.run_id = run_id
        by = f" by run {run_id!r}" if run_id else ""
        super().__init__(
            state_id,
            f"State {state_id!r} is being run{by}. Wait until that run has ended, or hand it a message: "
            f'await store.post({state_id!r}, Message.user("…"))',
        )


class ApprovalError(StateError):
    """
    A call cannot be approved or denied; nothing was written.

    Attributes:
        call_id: the call.
    """

    def __init__(self, state_id: str, call_id: str, reason: str) -> None:
        self.call_id = call_id
        super().__init__(state_id, f"the call {call_id!r} of State {state_id!r} cannot be decided on: {reason}")


class AlreadyDecidedError(ApprovalError):
    """
    Somebody decided on the call before, and the first decision counts.

    Attributes:
        approved: how they decided.
        by: who.
    """

    def __init__(self, state_id: str, call_id: str, *, approved: bool, by: str) -> None:
        self.approved, self.by = approved, by
        super().__init__(state_id, call_id, f"{by!r} has {'approved' if approved else 'denied'} it already")


class EventOrderError(StateError):
    """
    An Event cannot follow the Events before it; the State is unchanged.

    Attributes:
        kind: the kind of the refused Event.
        revision: the revision it would have had.
    """

    def __init__(self, state_id: str, kind: str, revision: int, reason: str) -> None:
        self.kind, self.revision, self.reason = kind, revision, reason
        super().__init__(state_id, f"{kind} cannot be revision {revision} of State {state_id!r}: {reason}")


class StateDamagedError(StateError):
    """
    What is stored for a State cannot be read back; other States are not concerned.

    Attributes:
        revision: the first Event that cannot be read; the ones before it can, by `load(id, revision=…)`.
    """

    def __init__(self, state_id: str, revision: int, reason: str) -> None:
        self.revision, self.reason = revision, reason
        good = revision - 1
        hint = f" What came before is readable: await store.load({state_id!r}, revision={good})" if good > 0 else ""
        super().__init__(state_id, f"State {state_id!r} is damaged at revision {revision}: {reason}.{hint}")


class EventFormatError(StateDamagedError):
    """An Event was written in a format that this release does not know, by a newer one as a rule."""


# ------------------------------------------------------------------------------------------------ stores


class StoreError(AlpineAgentsError):
    """Something about the place where States are kept."""


class StoreClosedError(StoreError):
    """The store was closed; make a new one to go on."""

    def __init__(self, store: str) -> None:
        super().__init__(f"{store} is closed. Use it inside `async with`, or make a new one")


class StoreUnavailableError(StoreError):
    """The database gave no answer in time. The State in memory keeps what is not saved: save it again later."""


class StoreSchemaError(StoreError):
    """The tables are missing or belong to another release; the message names the command that mends it."""


class StoreFeatureError(StoreError, NotImplementedError):
    """The backend does not implement what was asked of it."""

    def __init__(self, store: str, feature: str) -> None:
        self.feature = feature
        super().__init__(f"{store} cannot {feature}: override {feature}() in the class to give it that")


# ------------------------------------------------------------------------------------------------ models


class ModelError(AlpineAgentsError):
    """
    A model API did not give a reply.

    Attributes:
        status: HTTP status, where there was one.
        request_id: the provider's name for the request, to quote to its support.
        charged: whether the request may have cost something; False where it was refused, or never reached anyone.
        usage: what it took all the same, where the provider said so.
    """

    charged: bool = True
    usage: Usage | None = None

    def __init__(self, message: str, *, status: int | None = None, request_id: str | None = None) -> None:
        self.status, self.request_id = status, request_id
        super().__init__(message + (f" (request {request_id})" if request_id else ""))


class AuthError(ModelError):
    """The key is missing, wrong, or not allowed to do this."""


class RateLimitError(ModelError):
    """
    Too many requests for this key.

    Attributes:
        retry_after: seconds to wait as the provider says, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, status=status, request_id=request_id)


class ContextTooLongError(ModelError):
    """The messages do not fit into the model's context window."""


class ProviderError(ModelError):
    """The provider failed, could not be reached, or answered in a way that is not its own format."""


# ------------------------------------------------------------------------------------------------ tools


class ToolError(AlpineAgentsError):
    """
    Raise it in a tool to tell the model that the call failed; the run goes on.

    Example:
        >>> raise ToolError("no file named 'notes.txt' here")
        Traceback (most recent call last):
        ...
        alpineagents.errors.ToolError: no file named 'notes.txt' here
    """


class ToolInputError(ToolError):
    """The arguments of a call were wrong; the model is told what to change."""


class OutputError(AlpineAgentsError):
    """
    The model's answer does not have the shape that was asked for.

    Attributes:
        text: the last answer.
    """

    def __init__(self, message: str, text: str) -> None:
        self.text = text
        super().__init__(message)


# ------------------------------------------------------------------------------------------------ warnings


class ResumeWarning(UserWarning):
    """
    A loaded State is run by an Agent that differs from the one that saved it.

    Made an error, it stops the run before anything is done: `warnings.simplefilter("error", ResumeWarning)`.

    Attributes:
        changes: for each setting that differs (`name`, `model`, `system`, `tools`, `permissions`), what it was and what
            it is. Tools are a digest by name, so that one added, one removed and one with another schema can be told
            apart; permissions are a digest of the rules.
    """

    def __init__(self, state_id: str, changes: dict[str, tuple[object, object]]) -> None:
        self.state_id, self.changes = state_id, changes
        differences = ", ".join(_said(name, pair) for name, pair in changes.items())
        super().__init__(f"State {state_id!r} goes on with an Agent that differs in {differences}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _said(name: str, pair: tuple[object, object]) -> str:
    before, now = pair
    if not isinstance(before, dict) or not isinstance(now, dict):
        return name if name in ("system", "permissions") else f"{name} ({before!r} before, {now!r} now)"
    added, removed = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
    changed = sorted(tool for tool in now.keys() & before.keys() if now[tool] != before[tool])
    groups = (("added", added), ("removed", removed), ("changed", changed))
    parts = [f"{what} {', '.join(names)}" for what, names in groups if names]
    return f"{name} ({'; '.join(parts)})"
