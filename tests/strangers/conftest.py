"""Servers of the formats that others wrote; `nox -s strangers` installs them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("llmock") else ["test_llmock.py"]
