"""Servers of the formats that others wrote; `nox -s strangers` installs them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [f"test_{name}.py" for name in ("llmock", "fakellm") if not find_spec(name)]
