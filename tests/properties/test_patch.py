"""Laws of the difference of two JSON values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from alpineagents.patch import PatchOp, apply, clash, diff, same
from alpineagents.stores.codec import ascii_json, from_json
from tests.properties import values

small = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, 0.0, -0.0, "", "a", "/", "~", "~1", "-", "0"]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["", "a", "/", "~", "~1", "-", "0"]), inner)
    ),
    max_leaves=10,
)
"""Values that often share parts, with the keys that JSON Pointers must escape."""

either = st.one_of(st.tuples(small, small), st.tuples(values.json_values, values.json_values))


@given(either)
@example(([1, 2, 3], [3, 2, 1]))
@example(([1, 1, 1], [1]))
@example(({"a": [1]}, {"a": {"0": 1}}))
@example(([True], [1]))
@example((0.0, -0.0))
def test_a_difference_applied_gives_the_new_value(pair: tuple[Any, Any]) -> None:
    """From any value to any other."""
    old, new = pair

    assert same(apply(old, diff(old, new)), new)


@given(either)
def test_neither_value_is_changed(pair: tuple[Any, Any]) -> None:
    """Both are as they were, so snapshots that share them are too."""
    before = copy.deepcopy(pair)

    apply(pair[0], diff(*pair))

    assert same(list(pair), list(before))


objects = st.dictionaries(st.sampled_from(["a", "-", "0", "/"]), small, max_size=3)


@given(objects, objects, objects)
@example({"a": {}}, {"a": {"-": 1}}, {"a": {"-": 2}})
@example({"a": [1]}, {"a": [1, 2]}, {"a": [1, 3]})
@example({"a": [[]]}, {"a": [[1]]}, {"a": [[], [2]]})
def test_changes_that_do_not_clash_can_both_be_made(before: Any, mine: Any, theirs: Any) -> None:
    """In either order; where they do, both sides hear so."""
    steps, others = diff(before, mine), diff(before, theirs)
    clashes = clash(before, steps, others)

    assert (clashes is None) == (clash(before, others, steps) is None)
    if clashes is None:
        one, two = apply(theirs, steps), apply(mine, others)
        # What both added at the end of a list stands there in the order of the two.
        appended = {step.path for step in steps} & {step.path for step in others}
        assert all(path.endswith("/-") for path in appended)
        assert appended or same(one, two)


@given(either)
def test_the_steps_survive_being_stored(pair: tuple[Any, Any]) -> None:
    """Written and read again, they lead to the same value."""
    old, new = pair
    steps = [from_json(PatchOp, ascii_json(step)) for step in diff(old, new)]

    assert same(apply(old, steps), new)


@given(small)
def test_a_value_has_no_difference_from_itself(value: Any) -> None:
    """No step is written where nothing changed."""
    assert diff(value, copy.deepcopy(value)) == []


@given(small, small)
def test_same_tells_apart_what_json_tells_apart(one: Any, other: Any) -> None:
    """Two values are the same exactly if they are written the same, but for the order of keys."""
    written: Callable[[Any], str] = lambda value: repr(_sorted(value))  # noqa: E731  # typed, in a line

    assert same(one, other) == (written(one) == written(other))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@given(st.lists(small, min_size=50, max_size=60), st.lists(small, min_size=1, max_size=3))
def test_appending_to_a_long_list_costs_what_it_adds(items: list[Any], more: list[Any]) -> None:
    """One step an item, at the end, with nothing of the items before."""
    steps = diff({"log": items}, {"log": items + more})

    assert [(step.op, step.path) for step in steps] == [("add", "/log/-")] * len(more)
    assert same([step.value for step in steps], more)


@given(st.lists(st.integers(), min_size=20, max_size=40, unique=True), st.data())
def test_taking_an_item_out_of_a_long_list_is_one_step(items: list[int], data: st.DataObject) -> None:
    """At any place, and with nothing of the other items."""
    place = data.draw(st.integers(0, len(items) - 1))

    steps = diff(items, items[:place] + items[place + 1 :])

    assert [(step.op, step.path) for step in steps] == [("remove", f"/{place}")]


@given(st.lists(st.integers(), min_size=20, max_size=40, unique=True), st.data())
def test_putting_an_item_into_a_long_list_is_one_step(items: list[int], data: st.DataObject) -> None:
    """At any place, and with nothing of the other items."""
    place = data.draw(st.integers(0, len(items)))

    steps = diff(items, [*items[:place], -(2**70), *items[place:]])

    assert [(step.op, step.value) for step in steps] == [("add", -(2**70))]
