"""
Pure: a file's text → what it says about a project, as far as plain rules can tell.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

MAX_SENTENCE = 300


@dataclass
class Facts:
    """
    What one file says.

    Attributes:
        name: of the project.
        summary: what it is, in a sentence.
        entry_points: how it is started.
        dependencies: what it needs, by name.
        defines: what a source file has to offer, by name.
    """

    name: str = ""
    summary: str = ""
    entry_points: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)


def facts_of(path: str, text: str) -> Facts:
    """
    Return what a file says; nothing, where no rule fits it.

    Example:
        >>> facts_of("README.md", "# Peaks\\n\\nLists the *highest* mountains. And more.").summary
        'Lists the highest mountains.'
    """
    name = PurePosixPath(path).name.lower()
    rule = _RULES.get(name)
    if rule is None and name.startswith("readme"):
        rule = _readme
    if rule is None:
        rule = _SUFFIXES.get(PurePosixPath(name).suffix, _other)
    try:
        return rule(text)
    except (ValueError, TypeError, AttributeError, RecursionError, MemoryError):
        # Written by anybody: what cannot be read says nothing.
        return Facts()


def is_manifest(path: str) -> bool:
    """Tell whether a file is there to say what a project is and needs."""
    return PurePosixPath(path).name.lower() in _RULES


def first_sentence(text: str) -> str:
    """
    Return the first sentence of a text, on one line.

    Example:
        >>> first_sentence("Fast, e.g. in\\n1.5 s. Small too.")
        'Fast, e.g. in 1.5 s.'
    """
    line = " ".join(text.split())
    end = re.search(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[^a-z\d])|[.!?]$", line)
    sentence = line[: end.end()] if end else line + "." * bool(line and line[-1] not in ":;,.")
    return sentence if len(sentence) <= MAX_SENTENCE else sentence[: MAX_SENTENCE - 1] + "…"


# ------------------------------------------------------------------------------------------------ README


def _readme(text: str) -> Facts:
    facts = Facts()
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = text.splitlines()
    for paragraph in _paragraphs(lines):
        title = _title(paragraph)
        facts.name = facts.name or title
        rest = paragraph if not title else paragraph[1:] if paragraph[0].lstrip().startswith("#") else []
        words = _plain(" ".join(rest))
        if len(words.split()) >= 3:
            facts.summary = first_sentence(words)
            break
    return facts


def _paragraphs(lines: list[str]) -> Iterable[list[str]]:
    paragraph: list[str] = []
    in_code = False
    for line in [*lines, ""]:
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
        elif in_code:
            continue
        # A reStructuredText directive or field, a table, a rule.
        elif line.strip() and not re.match(r"\s*(\.\. |:\w+:|\||[-=*_]{3,}\s*$)", line):
            if paragraph and line.lstrip().startswith("#"):
                yield paragraph
                paragraph = []
            paragraph.append(line)
        elif re.match(r"[=\-~*#^]{3,}\s*$", line) and len(paragraph) == 1:
            yield [f"# {paragraph[0].strip()}"]
            paragraph = []
        elif paragraph:
            yield paragraph
            paragraph = []


def _title(paragraph: list[str]) -> str:
    found = re.match(r"\s*#+\s*(.+?)\s*#*$", paragraph[0]) or re.search(r"<h1[^>]*>(.+?)</h1>", " ".join(paragraph))
    return _plain(found[1]) if found else ""


def _plain(text: str) -> str:
    """Take the markup of Markdown, HTML and reStructuredText out of a text."""
    text = re.sub(r"!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])", "", text)
    text = re.sub(r"\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"`([^`<]*?)\s*<[^`]*>`_+|`+([^`]*)`+_*", lambda found: found[1] or found[2] or "", text)
    text = re.sub(r"(\*\*|__|\*)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    return " ".join(re.sub(r"^\s*(>|[-*+]\s)\s*", "", text).split())


# ------------------------------------------------------------------------------------------------ manifests


def _pyproject(text: str) -> Facts:
    data = tomllib.loads(text)
    project = data.get("project") or data.get("tool", {}).get("poetry") or {}
    wanted = project.get("dependencies") or []
    scripts = project.get("scripts") or {}
    return Facts(
        name=_text(project.get("name")),
        summary=first_sentence(_text(project.get("description"))),
        entry_points=[f"command {name}" for name in scripts],
        dependencies=[_requirement(item) for item in wanted if item != "python"],
    )


def _package_json(text: str) -> Facts:
    data = json.loads(text)
    commands = data.get("bin") or {}
    names = list(commands) if isinstance(commands, dict) else [_text(data.get("name"))]
    return Facts(
        name=_text(data.get("name")),
        summary=first_sentence(_text(data.get("description"))),
        entry_points=[f"command {name}" for name in names] + [f"npm run {name}" for name in data.get("scripts") or {}],
        dependencies=list(data.get("dependencies") or {}),
    )


def _cargo(text: str) -> Facts:
    data = tomllib.loads(text)
    package = data.get("package") or {}
    return Facts(
        name=_text(package.get("name")),
        summary=first_sentence(_text(package.get("description"))),
        entry_points=[f"command {item.get('name')}" for item in data.get("bin") or []],
        dependencies=list(data.get("dependencies") or {}),
    )


def _go_mod(text: str) -> Facts:
    found = re.search(r"^module\s+(\S+)", text, flags=re.MULTILINE)
    needed = re.findall(r"^\s*(?:require\s+)?(\S+\.\S+/\S+)\s+v\d", text, flags=re.MULTILINE)
    return Facts(name=found[1] if found else "", dependencies=needed)


def _requirements(text: str) -> Facts:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return Facts(dependencies=[_requirement(line) for line in lines if line and not line.startswith("-")])


def _requirement(line: str) -> str:
    return re.split(r"[\s<>=!~;\[(@]", line.strip(), maxsplit=1)[0]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# ------------------------------------------------------------------------------------------------ sources


def _python(text: str) -> Facts:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = ast.parse(text)
    except SyntaxError:
        # Of another Python, or cut in the middle.
        found = re.match(r"""\s*(?:\#[^\n]*\n\s*)*[rR]?(\"{3}|'{3})(.*?)\1""", text, flags=re.DOTALL)
        offered = re.findall(r"^(?:class|(?:async )?def) ([A-Za-z]\w*)", text, flags=re.MULTILINE)
        return Facts(summary=_opening(found[2] if found else ""), defines=offered)
    names: list[str] = []
    for node in module.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom) and node.level:
            # Imported from beside it under its own name: handed on, as an `__init__.py` does.
            names += [item.name for item in node.names if item.asname == item.name]
    public = [name for name in names if not name.startswith("_")]
    return Facts(summary=_opening(ast.get_docstring(module) or ""), defines=public)


def _opening(docstring: str) -> str:
    return first_sentence(_plain(re.split(r"\n\s*\n", docstring.strip())[0]))


def _other(text: str) -> Facts:
    """Take what a file says of itself: the comment that it begins with, or its first heading."""
    lines = [line for line in text.splitlines()[:40] if line.strip() and not line.startswith("#!")]
    said: list[str] = []
    for line in lines:
        found = re.match(
            r"\s*(?://+!?|#+(?=\s|$)|--+|/\*+!?|\*(?!/)|;+|\"\"\"|<!--)\s*(.*?)\s*(?:\*/|-->|\"\"\")?\s*$", line
        )
        if found is None:
            break
        said.append(found[1])
    words = " ".join(said)
    is_licence = re.search(r"copyright|licen[cs]e|SPDX", words, flags=re.IGNORECASE)
    return Facts(summary="" if is_licence or len(words.split()) < 3 else first_sentence(words))


def _silent(text: str) -> Facts:  # noqa: ARG001  # one of the rules
    return Facts()


_RULES: dict[str, Callable[[str], Facts]] = {
    "pyproject.toml": _pyproject,
    "package.json": _package_json,
    "cargo.toml": _cargo,
    "go.mod": _go_mod,
    "requirements.txt": _requirements,
}
_SUFFIXES: dict[str, Callable[[str], Facts]] = {
    ".py": _python,
    ".pyi": _python,
    ".md": _readme,
    ".rst": _readme,
    ".txt": _readme,
    ".json": _silent,
    ".csv": _silent,
}
