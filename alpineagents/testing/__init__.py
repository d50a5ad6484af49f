"""What tests use: prepared models and people, what a run did, time that stands still, and the rules of all stores."""

from typing import TYPE_CHECKING

from alpineagents.testing.calls import CalledTool, calls, transcript
from alpineagents.testing.frozen import frozen
from alpineagents.testing.human import FakeHuman
from alpineagents.testing.model import FakeModel, tool_call
from alpineagents.testing.recording import record_model

if TYPE_CHECKING:
    from alpineagents.testing.contract import StoreContract

__all__ = [
    "CalledTool",
    "FakeHuman",
    "FakeModel",
    "StoreContract",
    "calls",
    "frozen",
    "record_model",
    "tool_call",
    "transcript",
]


def __getattr__(name: str) -> object:
    # Only the contract needs pytest, which an app that tests with something else may not have.
    if name != "StoreContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from alpineagents.testing.contract import StoreContract
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ImportError("StoreContract is a class of tests for pytest: pip install pytest") from error
    return StoreContract
