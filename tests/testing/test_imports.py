"""What `alpineagents.testing` needs, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alpineagents import testing

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
from alpineagents.testing import FakeModel, tool_call
assert FakeModel([tool_call("look")]).remaining == 1
try:
    from alpineagents.testing import StoreContract
except ImportError as error:
    print(error)
"""


def test_only_the_contract_needs_pytest() -> None:
    """An app that has no pytest can use the model; the error of the contract says what to install."""
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST], capture_output=True, text=True)

    assert (run.returncode, run.stderr) == (0, "")
    assert "pip install pytest" in run.stdout


def test_there_are_no_other_names() -> None:
    """A name that is written wrongly is an error like that of any module."""
    assert all(hasattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError, match="StoreContact"):
        _ = testing.StoreContact
