"""
The difference of two JSON values, and a value with a difference applied: JSON Patch (RFC 6902, April 2013).

Only `add`, `remove` and `replace` are written and read, with JSON Pointers (RFC 6901). What is appended to a long list
costs what it adds, not what the list holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from alpineagents.values import Json, Text


class PatchOp(BaseModel):
    """
    One step of a JSON Patch.

    Attributes:
        op: what to do.
        path: JSON Pointer to the place; `""` is the whole value, a last `-` the end of a list.
        value: what is put there; None for `remove`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    op: Literal["add", "remove", "replace"]
    path: Text
    value: Json = None


def same(a: JsonValue, b: JsonValue) -> bool:
    """
    Tell whether two values are the same JSON; unlike `==`, 1 is neither True nor 1.0.

    Example:
        >>> same([1], [1]), same([1], [True]), same(1, 1.0)
        (True, False, False)
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(item, b[key]) for key, item in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(mine, its) for mine, its in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a == b


def diff(old: JsonValue, new: JsonValue, path: str = "") -> list[PatchOp]:
    """
    Return the steps that turn one value into another.

    Example:
        >>> [(step.op, step.path) for step in diff({"todo": ["a"]}, {"todo": ["a", "b"], "done": 1})]
        [('add', '/todo/-'), ('add', '/done')]
    """
    if same(old, new):
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        steps = [PatchOp(op="remove", path=_join(path, key)) for key in old if key not in new]
        for key, item in new.items():
            if key in old:
                steps += diff(old[key], item, _join(path, key))
            else:
                steps.append(PatchOp(op="add", path=_join(path, key), value=item))
        return steps
    if isinstance(old, list) and isinstance(new, list):
        return _diff_lists(old, new, path)
    return [PatchOp(op="replace", path=path, value=new)]


def _diff_lists(old: list[JsonValue], new: list[JsonValue], path: str) -> list[PatchOp]:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    steps: list[PatchOp] = []
    both = min(len(gone), len(come))
    for index in range(both):
        steps += diff(gone[index], come[index], _join(path, str(head + index)))
    steps += [PatchOp(op="remove", path=_join(path, str(head + both))) for _ in gone[both:]]
    for index, item in enumerate(come[both:], start=head + both):
        at_end = index >= len(old)
        steps.append(PatchOp(op="add", path=_join(path, "-" if at_end and not tail else str(index)), value=item))
    return steps


def apply(value: JsonValue, steps: Sequence[PatchOp]) -> JsonValue:
    """
    Return the value with the steps done; the value given stays as it is.

    Raises:
        LookupError: a step names a place that is not there.

    Example:
        >>> apply({"todo": ["a"]}, [PatchOp(op="add", path="/todo/-", value="b")])
        {'todo': ['a', 'b']}
    """
    for step in steps:
        keys = [_key(part) for part in step.path.split("/")[1:]]
        value = _put(value, keys, step)
    return value


def clash(before: JsonValue, mine: Sequence[PatchOp], theirs: Sequence[PatchOp]) -> str | None:
    """
    Return where two changes of one value concern the same place, or None where both can be made.

    In a list only what both add at its end goes together: anything else moves the places of the other.

    Example:
        >>> before = {"a": 1, "log": []}
        >>> one, two = diff(before, {"a": 2, "log": []}), diff(before, {"a": 1, "log": [1]})
        >>> clash(before, one, two), clash(before, two, two), clash(before, one, one)
        (None, None, '/a')
    """
    theirs_at = [_place(before, step) for step in theirs]
    for step in mine:
        place, appends = _place(before, step)
        for its, too in theirs_at:
            within = f"{place}/".startswith(f"{its}/") or f"{its}/".startswith(f"{place}/")
            if within and not (appends and too and place == its):
                return max(place, its, key=len)
    return None


def _place(value: JsonValue, step: PatchOp) -> tuple[str, bool]:
    """Return the path of a step up to the first list on it, and whether it adds at the end of that list."""
    parts = step.path.split("/")
    for depth, part in enumerate(parts[1:], start=1):
        if isinstance(value, list):
            return "/".join(parts[:depth]), part == "-" and depth + 1 == len(parts)
        value = value.get(_key(part)) if isinstance(value, dict) else None
    return step.path, False


def _put(value: JsonValue, keys: list[str], step: PatchOp) -> JsonValue:
    # Copies along the path only: what lies beside it is shared with the value before.
    if not keys:
        return step.value
    key, rest = keys[0], keys[1:]
    if isinstance(value, dict):
        changed = dict(value)
        if not rest and step.op == "remove":
            del changed[key]
        elif rest or step.op == "replace":
            changed[key] = _put(changed[key], rest, step)
        else:
            changed[key] = step.value
        return changed
    if isinstance(value, list):
        items = list(value)
        index = len(items) if key == "-" else int(key)
        if not rest and step.op == "add":
            items.insert(index, step.value)
        elif not rest and step.op == "remove":
            del items[index]
        else:
            items[index] = _put(items[index], rest, step)
        return items
    raise LookupError(f"{step.path!r} leads through a value that holds nothing")


def _join(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def _key(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
