"""
Sequences and sets that grow at their end without copying, and never change for whoever holds one.

A fold that copies its messages at each step takes time that grows with the square of the history. Here a longer value
shares the storage of the shorter one and sees more of it. Only when two values grow from the same one does the second
copy: both stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class FrozenList(Sequence[T]):
    """
    A list that cannot be changed; `adding` gives a longer one in constant time.

    Example:
        >>> one = FrozenList(["a"])
        >>> two = one.adding("b")
        >>> one, two
        (FrozenList(['a']), FrozenList(['a', 'b']))
        >>> two == ["a", "b"]
        True
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def adding(self, *items: T) -> FrozenList[T]:
        """Return a list with the items behind these."""
        shared = self._items if len(self._items) == self._length else self._items[: self._length]
        shared.extend(items)
        longer: FrozenList[T] = FrozenList.__new__(FrozenList)
        longer._items, longer._length = shared, self._length + len(items)
        return longer

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            # A negative step may leave stop at -1, which a slice of the storage would read as "from the end".
            return tuple(
                self._items[start:stop:step] if step > 0 else (self._items[i] for i in range(start, stop, step))
            )
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} is out of a list of {self._length}")
        return self._items[index if index >= 0 else index + self._length]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[: self._length])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenList):
            if self._length != len(other):
                return False
            return self._items is other._items or self._items[: self._length] == other._items[: self._length]
        if isinstance(other, (list, tuple)):
            return self._length == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"FrozenList({self._items[: self._length]!r})"

    def __reduce__(self) -> tuple[type[FrozenList[T]], tuple[list[T]]]:
        return FrozenList, (self._items[: self._length],)


class FrozenSet(Generic[T]):
    """
    A set that cannot be changed; `adding` gives a larger one in constant time.

    Example:
        >>> names = FrozenSet().adding("a")
        >>> "a" in names, "b" in names
        (True, False)
    """

    __slots__ = ("_order", "_size")

    def __init__(self) -> None:
        self._order: dict[T, int] = {}
        self._size = 0

    def adding(self, item: T) -> FrozenSet[T]:
        """Return a set that holds the item too."""
        if item in self:
            return self
        shared = (
            self._order
            if len(self._order) == self._size
            else {known: place for known, place in self._order.items() if place < self._size}
        )
        shared[item] = self._size
        larger: FrozenSet[T] = FrozenSet.__new__(FrozenSet)
        larger._order, larger._size = shared, self._size + 1
        return larger

    def __contains__(self, item: T) -> bool:
        return self._order.get(item, self._size) < self._size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return (item for item, place in list(self._order.items()) if place < self._size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenSet) and set(self) == set(other)

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"FrozenSet({list(self)!r})"

    def __reduce__(self) -> tuple[object, tuple[list[T]]]:
        return _frozen_set, (list(self),)


def _frozen_set(items: list[T]) -> FrozenSet[T]:
    value: FrozenSet[T] = FrozenSet()
    for item in items:
        value = value.adding(item)
    return value
