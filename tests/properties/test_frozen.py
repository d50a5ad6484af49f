"""FrozenList and FrozenSet beside a plain list and set, however they branch."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from alpineagents.frozen import FrozenList, FrozenSet

items = st.integers(0, 5)
indexes = st.none() | st.integers(-9, 9)

ListPair = tuple[FrozenList[int], list[int]]
SetPair = tuple[FrozenSet[int], list[int]]


class FrozenListMachine(RuleBasedStateMachine):
    """Every list that was ever made stays equal to its model, whatever grew from it."""

    lists = Bundle("lists")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[ListPair] = []

    def keep(self, pair: ListPair) -> ListPair:
        self.all.append(pair)
        return pair

    @initialize(target=lists, start=st.lists(items, max_size=3))
    def begin(self, start: list[int]) -> ListPair:
        pair = self.keep((FrozenList(start), list(start)))
        start.append(99)
        return pair

    @rule(target=lists, pair=lists, more=st.lists(items, max_size=3))
    def grow(self, pair: ListPair, more: list[int]) -> ListPair:
        frozen, model = pair
        return self.keep((frozen.adding(*more), model + more))

    @rule(pair=lists, index=st.integers(-9, 9))
    def look_up(self, pair: ListPair, index: int) -> None:
        frozen, model = pair
        if -len(model) <= index < len(model):
            assert frozen[index] == model[index]
        else:
            with pytest.raises(IndexError):
                frozen[index]

    @rule(pair=lists, start=indexes, stop=indexes, step=indexes.filter(lambda step: step != 0))
    def cut(self, pair: ListPair, start: int | None, stop: int | None, step: int | None) -> None:
        frozen, model = pair
        assert frozen[start:stop:step] == tuple(model[start:stop:step])

    @rule(one=lists, other=lists)
    def compare(self, one: ListPair, other: ListPair) -> None:
        assert (one[0] == other[0]) == (one[1] == other[1])
        assert (one[0] == other[1]) == (one[1] == other[1])
        assert (one[0] == tuple(other[1])) == (one[1] == other[1])
        if one[1] == other[1]:
            assert hash(one[0]) == hash(other[0])

    @rule(pair=lists, item=items)
    def search(self, pair: ListPair, item: int) -> None:
        frozen, model = pair
        assert (item in frozen) == (item in model)
        assert frozen.count(item) == model.count(item)

    def teardown(self) -> None:
        for frozen, model in self.all:
            assert list(frozen) == model
            assert list(reversed(frozen)) == model[::-1]
            assert len(frozen) == len(model)
            assert repr(frozen) == f"FrozenList({model!r})"
            assert pickle.loads(pickle.dumps(frozen)) == model


class FrozenSetMachine(RuleBasedStateMachine):
    """Every set that was ever made stays equal to its model, whatever grew from it, and keeps its order."""

    sets = Bundle("sets")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[SetPair] = []

    def keep(self, pair: SetPair) -> SetPair:
        self.all.append(pair)
        return pair

    @initialize(target=sets)
    def begin(self) -> SetPair:
        return self.keep((FrozenSet(), []))

    @rule(target=sets, pair=sets, item=items)
    def grow(self, pair: SetPair, item: int) -> SetPair:
        frozen, model = pair
        return self.keep((frozen.adding(item), model if item in model else [*model, item]))

    @rule(pair=sets, item=items)
    def search(self, pair: SetPair, item: int) -> None:
        assert (item in pair[0]) == (item in pair[1])

    @rule(one=sets, other=sets)
    def compare(self, one: SetPair, other: SetPair) -> None:
        assert (one[0] == other[0]) == (set(one[1]) == set(other[1]))
        if one[0] == other[0]:
            assert hash(one[0]) == hash(other[0])

    def teardown(self) -> None:
        for frozen, model in self.all:
            assert list(frozen) == model
            assert len(frozen) == len(model)
            assert pickle.loads(pickle.dumps(frozen)) == frozen


TestFrozenList = FrozenListMachine.TestCase
TestFrozenSet = FrozenSetMachine.TestCase
