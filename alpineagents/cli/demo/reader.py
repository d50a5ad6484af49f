"""
A Model made of rules: it lists a folder, reads the files that tell most, and answers from what they say.

It needs no key and no network, and asks for tools as any other Model does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import anyio.lowlevel

from alpineagents.cli.demo.facts import Facts, facts_of, is_manifest
from alpineagents.messages import Message, Reply, Request, TextBlock, ToolCall, ToolResultBlock
from alpineagents.models.base import Delta, Emit
from alpineagents.usage import Usage

MAX_READ = 6
MAX_LISTED = 8

_TELLING = (
    r"readme(\.\w+)?",
    r"pyproject\.toml|package\.json|cargo\.toml|go\.mod",
    r"requirements\.txt",
    r"src/[^/]+/__init__\.py|__init__\.py",
    r"__main__\.py|main\.\w+|app\.\w+|cli\.\w+|index\.\w+|lib\.rs|src/main\.\w+|src/lib\.rs|src/index\.\w+",
    r"[^/]+/__init__\.py",
    r"docs/(index|readme)\.\w+",
)
"""What tells most about a project, in order."""

_LANGUAGES = {
    "c": "C", "cc": "C++", "cpp": "C++", "cs": "C#", "css": "CSS", "dart": "Dart", "ex": "Elixir", "go": "Go", "h": "C",
    "hs": "Haskell", "html": "HTML", "ipynb": "Jupyter", "java": "Java", "jl": "Julia", "js": "JavaScript",
    "jsx": "JavaScript", "kt": "Kotlin", "lua": "Lua", "mjs": "JavaScript", "php": "PHP", "pl": "Perl", "py": "Python",
    "pyi": "Python", "r": "R", "rb": "Ruby", "rs": "Rust", "scala": "Scala", "sh": "Shell", "sql": "SQL",
    "swift": "Swift", "ts": "TypeScript", "tsx": "TypeScript", "vue": "Vue", "zig": "Zig", "md": "Markdown",
    "rst": "reStructuredText",
}  # fmt: skip
_PROSE = frozenset({"Markdown", "reStructuredText"})


@dataclass
class _Listing:
    """A folder as `list_files` shows it."""

    folder: str
    sizes: dict[str, int] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    total: int = 0
    is_cut: bool = False


class FolderReader:
    """
    Answers what a folder is about, with the tools `list_files` and `read_file`.

    Example:
        >>> reply = anyio.run(FolderReader().respond, Request(messages=[Message.user("What is here?")]))
        >>> [call.name for call in reply.message.tool_calls]
        ['list_files']
    """

    name = "folder-reader"

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """Ask for the list, then for the files that tell most, then answer."""
        await anyio.lowlevel.checkpoint()
        content = _next(request.messages)
        message = Message(role="assistant", content=content)
        if emit is not None:
            for part in re.findall(r"\s*\S+\s*", message.text):
                emit(Delta(text=part))
        seen = sum(len(each.text) + sum(len(result.text) for result in each.tool_results) for each in request.messages)
        usage = Usage(input_tokens=seen // 4, output_tokens=len(message.text) // 4, requests=1)
        reason = "tool_use" if message.tool_calls else "end_turn"
        return Reply(message=message, usage=usage, stop_reason=reason, model=self.name)

    async def aclose(self) -> None:
        """Do nothing: it holds nothing open."""


def _next(messages: Sequence[Message]) -> tuple[TextBlock | ToolCall, ...]:
    done = list(_results(messages))
    listed = next((result for call, result in done if call.name == "list_files"), None)
    if listed is None:
        return (TextBlock(text="I list the files first."), ToolCall(id="list", name="list_files"))
    if listed.failed:
        return (TextBlock(text=f"The folder cannot be listed: {listed.text}"),)
    listing = _parsed(listed.text)
    read = [(str(call.args.get("path")), result) for call, result in done if call.name == "read_file"]
    chosen = _chosen(listing)
    if not read and chosen:
        calls = (ToolCall(id=f"read-{n}", name="read_file", args={"path": path}) for n, path in enumerate(chosen, 1))
        return (TextBlock(text="These files should tell most."), *calls)
    return (TextBlock(text=_answer(listing, {path: result.text for path, result in read if not result.failed})),)


def _results(messages: Sequence[Message]) -> Iterable[tuple[ToolCall, ToolResultBlock]]:
    """Yield the calls since the last question, with their results."""
    questions = [place for place, message in enumerate(messages) if message.is_plain]
    calls: dict[str, ToolCall] = {}
    for message in messages[questions[-1] if questions else 0 :]:
        calls.update((call.id, call) for call in message.tool_calls)
        for result in message.tool_results:
            if result.call_id in calls:
                yield calls[result.call_id], result


def _parsed(text: str) -> _Listing:
    first, *lines = text.splitlines() or [""]
    head = re.fullmatch(r"folder (.*?): (at least )?(\d+) text file\(s\): (.*)", first)
    if head is None:
        return _Listing(folder=first.removeprefix("folder ").partition(":")[0])
    listing = _Listing(folder=head[1], total=int(head[3]), is_cut=head[2] is not None)
    listing.kinds.update({kind: int(count) for kind, count in re.findall(r"(\S+) (\d+)(?:, |$)", head[4])})
    for line in lines:
        if found := re.fullmatch(r"\s*(\d+)  (.+)", line):
            listing.sizes[found[2]] = int(found[1])
    return listing


def _chosen(listing: _Listing) -> list[str]:
    """Return the files to read: those whose names promise most, then the largest sources near the top."""
    chosen: list[str] = []
    for pattern in _TELLING:
        fitting = [path for path in listing.sizes if re.fullmatch(pattern, path, flags=re.IGNORECASE)]
        chosen += [path for path in fitting if path not in chosen][:2]
    left = [path for path in listing.sizes if path not in chosen]
    sources = [path for path in left if _language(path) not in (None, *_PROSE) and not _is_test(path)]
    others = [path for path in left if path not in sources]
    by_weight = sorted(sources, key=lambda path: (path.count("/"), -listing.sizes[path]))
    return [*chosen, *by_weight, *others][:MAX_READ]


def _language(path: str) -> str | None:
    return _LANGUAGES.get(PurePosixPath(path).suffix.lower().removeprefix("."))


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name.lower()
    return re.search(r"(^|/)(tests?|spec|__tests__)/", path.lower()) is not None or (
        re.match(r"test_.+|.+_test\.\w+$|.+\.(test|spec)\.\w+$", name) is not None
    )


# ------------------------------------------------------------------------------------------------ the answer


def _answer(listing: _Listing, texts: dict[str, str]) -> str:
    if not listing.total:
        return f"The folder {listing.folder} has no text files, so there is nothing that says what it is about."
    found = {path: facts_of(path, text) for path, text in texts.items()}
    least = "at least " if listing.is_cut else ""
    lines = [_opening(listing, found), f"It has {least}{listing.total} text file(s): {_languages(listing)}."]
    entries = [entry for facts in found.values() for entry in facts.entry_points]
    entries += [path for path in listing.sizes if re.fullmatch(r"(.*/)?(__main__\.py|main\.\w+)", path)]
    needed = [name for facts in found.values() for name in facts.dependencies]
    if entries:
        lines.append(f"It is started by {_several(entries)}.")
    if needed:
        lines.append(f"It needs {_several(needed)}.")
    tests = [path for path in listing.sizes if _is_test(path)]
    lines.append(
        f"{len(tests)} of the {len(listing.sizes)} files in the list are tests." if tests else "I saw no tests."
    )
    lines += _sources(found)
    if texts:
        lines.append(f"I read {_several(list(texts))}.")
    return "\n".join(lines)


def _opening(listing: _Listing, found: dict[str, Facts]) -> str:
    readme = [facts for path, facts in found.items() if _is_readme(path)]
    manifests = [facts for path, facts in found.items() if is_manifest(path)]
    tops = [facts for path, facts in found.items() if re.fullmatch(r"(src/[^/]+/)?__init__\.py|docs/.*", path)]
    # A manifest knows the name best, a README what it is about.
    name = next((facts.name for facts in (*manifests, *readme) if facts.name), listing.folder)
    for facts in (*readme, *manifests, *tops):
        if facts.summary:
            return f"{name}: {facts.summary}"
    for path, facts in found.items():
        if facts.summary:
            return f"{name}: no file that I read says what it is as a whole. {path} begins: {facts.summary}"
    return f"{name}: no file that I read says in words what it is."


def _is_readme(path: str) -> bool:
    return PurePosixPath(path).name.lower().startswith("readme")


def _languages(listing: _Listing) -> str:
    counts: Counter[str] = Counter()
    for kind, count in listing.kinds.items():
        counts[_LANGUAGES.get(kind.lower().removeprefix("."), kind)] += count
    shown = sorted(counts, key=lambda language: (language in _PROSE, -counts[language]))
    return ", ".join(f"{counts[language]} {language}" for language in shown[:MAX_LISTED])


def _sources(found: dict[str, Facts]) -> Iterable[str]:
    for path, facts in found.items():
        if facts.defines:
            yield " ".join(
                part for part in (f"- {path}:", facts.summary, f"It offers {_several(facts.defines)}.") if part
            )


def _several(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(name for name in names if name))
    more = len(unique) - MAX_LISTED
    return ", ".join(unique[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
