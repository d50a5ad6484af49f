"""
Digests that bind an approval to what was shown: a tool as it is declared, and the arguments of one call.

An approval counts for the call whose digest it names. Another amount, another tool under the same name or another
parameter gives another digest, and whoever runs the call asks again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pydantic import JsonValue

from alpineagents.messages import ToolSpec


def signature_of(spec: ToolSpec) -> str:
    """
    Return what names a tool: SHA-256 of its name and its parameters, in hexadecimal digits.

    What it says about itself is left out, so a better docstring does not undo an approval.
    """
    return _sha256([spec.name, spec.parameters])


def digest_of(signature: str, args: Mapping[str, JsonValue]) -> str:
    """
    Return what names a call: SHA-256 of its tool and its arguments, in hexadecimal digits.

    Example:
        >>> digest_of("pay", {"amount": 1}) == digest_of("pay", {"amount": 82_000})
        False
    """
    return _sha256([signature, dict(args)])


def seal_of(said: Mapping[str, object]) -> str:
    """
    Return what names a decision: SHA-256 of all that it says.

    It needs no key, so it shows that a record was changed by hand or damaged, not who may write one.

    Args:
        said: the fields of an `ApprovalDecided`; others are left out.
    """
    return _sha256([said.get(name, default) for name, default in _SAID.items()])


_SAID = {"call_id": "", "digest": "", "approved": False, "by": "", "note": "", "args": None, "always": ""}


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()
