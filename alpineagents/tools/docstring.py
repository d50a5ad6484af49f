"""
What a docstring says of a tool and of each of its parameters, in Google, numpy or Sphinx style.

The parser is imported with the first docstring, since most that import the library define no tool at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docstring_parser import Docstring

_STYLES = ("GOOGLE", "NUMPYDOC", "REST")


@dataclass(frozen=True, slots=True)
class Described:
    """
    A docstring, taken apart.

    Attributes:
        text: summary, body and what is returned; what is said of parameters, errors and examples is left out.
        parameters: what is said of each parameter, by its name.
    """

    text: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(docstring: str | None, names: Collection[str]) -> Described:
    """
    Take a docstring apart.

    The style is not guessed from headings, which a sentence may look like: it is the one that finds most of the
    parameters. Where none finds any section, the text stays as it was written.

    Args:
        docstring: as written, with its indentation.
        names: the parameters that there are.

    Example:
        >>> read_docstring("Add. \\n\\n Args:\\n  a: one number", ["a"])
        Described(text='Add.', parameters={'a': 'one number'})
    """
    whole = inspect.cleandoc(docstring or "").strip()
    if not whole:
        return Described()
    found = [parsed for style in _STYLES if (parsed := _parsed(whole, style)) is not None and parsed.meta]
    if not found:
        return Described(whole)
    # max keeps the first of equals, so that the order of _STYLES decides.
    best = max(found, key=lambda parsed: (len(_parameters(parsed, names)), len(parsed.meta)))
    return Described(_text(best), _parameters(best, names))


def _parsed(text: str, style: str) -> Docstring | None:
    from docstring_parser import DocstringStyle, ParseError, parse

    try:
        return parse(text, DocstringStyle[style])
    except ParseError:
        return None


def _parameters(parsed: Docstring, names: Collection[str]) -> dict[str, str]:
    said: dict[str, str] = {}
    for parameter in parsed.params:
        for name in parameter.arg_name.split(","):  # numpy allows "x, y : int"
            if name.strip() in names and parameter.description:
                said[name.strip()] = " ".join(parameter.description.split())
    return said


def _text(parsed: Docstring) -> str:
    parts = [parsed.short_description, parsed.long_description]
    if parsed.returns is not None and parsed.returns.description:
        parts.append(f"Returns: {parsed.returns.description}")
    return "\n\n".join(part.strip() for part in parts if part and part.strip())
