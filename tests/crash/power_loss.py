"""The disks that a crash may leave of a recorded one.

A **killed process** leaves all it did, and of a write that was going on any number of first bytes:
tried are every `Effort.end_every`.

A **power loss** leaves what was synced, and of the rest what chance likes. Of a file: any of the
writes and resizes since its last sync, whether or not the earlier ones are there (then their place
is zeros, or what it was); of a write the first bytes only, with the file ending there or going on
with zeros as if its length alone had reached the disk; or nonsense in place of the bytes. Of a
directory: of what was done to names that have to do with each other the first steps, any number;
names that have nothing to do with each other in any mixture. No file and no directory waits for
another one.

All of this at once is more than can be tried. What is:

- everything dropped, and everything kept;
- of each file or directory every *state* while all others are dropped, and while all are kept. The
  states are all subsets of what is pending, up to `Effort.subsets_up_to` operations; of more:
  none, all, the first ones, all but one, one alone; and each write halved, zeroed, and nonsense;
- the file that was written to last torn at every `Effort.end_every` byte while all else is kept,
  and at every `Effort.tear_every` in any other company, and with zeros behind;
- all combinations of states of all files and directories, where they are not more than
  `Effort.combinations_up_to`: each before each other, in both orders.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod

import attrs

from tests.crash.recording import Link, NameOperation, Operation, Resize, Sync, Tree, Write

_NONSENSE = random.Random(8).randbytes(1 << 16)


@attrs.frozen
class Effort:
    """How far combinations go before they are chosen from; how many bytes are between two ends of
    the last write, and between two tears of it; how many disks that crashed are between two that
    are crashed again while they are opened, and how hard these are tried."""

    subsets_up_to: int = 3
    combinations_up_to: int = 24
    end_every: int = 1
    tear_every: int = 20
    open_again_every: int = 300
    again: Effort | None = None


QUICK = Effort(end_every=3)
EACH_BYTE = Effort()
DEEP = Effort(6, 2000, tear_every=1, open_again_every=50, again=Effort(1, 0, tear_every=40))


@attrs.frozen
class Crash:
    """A disk after a crash. `how` is for people."""

    how: str
    tree: Tree
    was_killed: bool


State = tuple[str, bytes | dict[str, int]]
"""Of a file or a directory after a crash: how it came to be, and what it is."""


@attrs.define(eq=False)
class Platter:
    """What is safe on a disk, and what is pending of each file and directory."""

    safe: Tree
    now: Tree = attrs.field(init=False)
    pending: dict[int, list[Operation]] = attrs.field(factory=dict)
    last: Operation | None = None

    def __attrs_post_init__(self) -> None:
        self.now = self.safe.copy()

    def advance(self, operation: Operation) -> None:
        """Take the next operation."""
        self.last = operation
        self.now.apply(operation)
        if isinstance(operation, Link):
            self.safe.make(operation.target, operation.is_directory)
        if isinstance(operation, Sync):
            for pending in self.pending.pop(operation.node, []):
                self.safe.apply(pending)
        else:
            self.pending.setdefault(operation.node, []).append(operation)

    def killed(self, next_operation: Operation | None, effort: Effort) -> Iterator[Crash]:
        """Yield the disks that are left if the process dies now, or during the next operation."""
        yield Crash("killed", self.now.copy(), True)
        if isinstance(next_operation, Write):
            for size in _sizes(next_operation, effort.end_every):
                tree = self.now.copy()
                tree.apply(attrs.evolve(next_operation, data=next_operation.data[:size]))
                yield Crash(f"killed after {size} bytes of the next write", tree, True)

    def without_power(self, effort: Effort) -> Iterator[Crash]:
        """Yield the disks that may be left if the power fails now."""
        yield Crash("all dropped", self.safe.copy(), False)
        yield Crash("all kept", self.now.copy(), False)
        states = {node: list(self._states(node, effort)) for node in self.pending}
        for node, of_node in states.items():
            for how, state in (*of_node, *self._torn(node, effort)):
                yield _with(self.safe, {node: state}, f"{how}, all else dropped")
                yield _with(self.now, {node: state}, f"{how}, all else kept")
            for how, state in self._torn_anywhere(node, effort):
                yield _with(self.now, {node: state}, f"{how}, all else kept")
        if len(states) > 1 and prod(map(len, states.values())) <= effort.combinations_up_to:
            for chosen in product(*states.values()):
                how = "; ".join(how for how, _ in chosen)
                combination = dict(zip(states, (state for _, state in chosen), strict=True))
                yield _with(self.safe, combination, how)

    def _states(self, node: int, effort: Effort) -> Iterator[State]:
        pending = self.pending[node]
        if node in self.safe.names:
            yield from _directory_states(self.safe, node, pending, effort)
        else:
            yield from _file_states(self.safe.files[node], node, pending, effort)

    def _torn_anywhere(self, node: int, effort: Effort) -> Iterator[State]:
        """Yield a file whose last write, the last thing done at all, ends at any of its bytes."""
        *earlier, last = self.pending[node]
        if last is self.last and isinstance(last, Write):
            before = _content(self.safe.files[node], earlier)
            for size in _sizes(last, effort.end_every):
                torn = attrs.evolve(last, data=last.data[:size])
                yield f"{node} torn after {size} bytes", _content(before, [torn])

    def _torn(self, node: int, effort: Effort) -> Iterator[State]:
        """Yield the file with more or less of what should be beside the bytes that are there."""
        *earlier, last = self.pending[node]
        if last is not self.last or not isinstance(last, Write):
            return
        before = _content(self.safe.files[node], earlier)
        alone = self.safe.files[node]
        for size in range(1, len(last.data), effort.tear_every):
            data, rest = last.data[:size], bytes(len(last.data) - size)
            how = f"{node} torn after {size} bytes"
            yield how, _content(before, [attrs.evolve(last, data=data)])
            yield how + ", zeros follow", _content(before, [attrs.evolve(last, data=data + rest)])
            if earlier:
                yield how + " alone", _content(alone, [attrs.evolve(last, data=data)])


def _sizes(write: Write, every: int) -> list[int]:
    """Return how much of a write is there: its first byte, all but its last, some in between."""
    last = len(write.data) - 1
    return [*range(1, last, every), last] if last > 0 else []


def _with(company: Tree, states: dict[int, bytes | dict[str, int]], how: str) -> Crash:
    tree = company.copy()
    for node, state in states.items():
        if isinstance(state, bytes):
            tree.files[node] = state
        else:
            tree.names[node] = dict(state)
    return Crash(how, tree, False)


def _file_states(
    before: bytes, node: int, pending: Sequence[Operation], effort: Effort
) -> Iterator[State]:
    for kept in _choices(len(pending), effort):
        yield f"{node} has {kept} of {len(pending)}", _content(before, [pending[i] for i in kept])
    for number, operation in enumerate(pending):
        if isinstance(operation, Write):
            for how, data in _spoiled(operation.data):
                spoiled = [*pending[:number], attrs.evolve(operation, data=data)]
                content = _content(before, [*spoiled, *pending[number + 1 :]])
                yield f"{node} has number {number} {how}", content


def _spoiled(data: bytes) -> Iterator[tuple[str, bytes]]:
    half = len(data) // 2
    yield "halved", data[:half]
    yield "zeroed", bytes(len(data))
    yield "nonsense", _NONSENSE[: len(data)]
    yield "half nonsense", data[:half] + _NONSENSE[: len(data) - half]


def _directory_states(
    safe: Tree, node: int, pending: Sequence[Operation], effort: Effort
) -> Iterator[State]:
    """Any number of first steps of each group of names, in any mixture."""
    groups = _related(
        [operation for operation in pending if not isinstance(operation, Write | Resize | Sync)]
    )
    lengths = [range(len(group) + 1) for group in groups]
    if prod(map(len, lengths)) <= max(effort.combinations_up_to, 16):
        chosen: Iterable[Sequence[int]] = product(*lengths)
    else:
        chosen = _some_lengths([len(group) for group in groups])
    for counts in chosen:
        steps = [
            step for group, count in zip(groups, counts, strict=True) for step in group[:count]
        ]
        tree = Tree({}, {node: dict(safe.names[node])})
        for step in pending:
            if any(step is kept for kept in steps):
                tree.apply(step)
        yield f"{node} has {counts} of the steps of its names", tree.names[node]
    for count in range(1, len(pending)):  # the first steps as they were done
        tree = Tree({}, {node: dict(safe.names[node])})
        for step in pending[:count]:
            tree.apply(step)
        yield f"{node} has the first {count} steps of its names", tree.names[node]


def _related(steps: Sequence[NameOperation]) -> list[list[NameOperation]]:
    """Steps in groups that share names, each group in order."""
    groups: list[tuple[set[str], list[int]]] = []
    for number, step in enumerate(steps):
        names, numbers, apart = set(step.names), [number], []
        for group in groups:
            if group[0] & names:
                names, numbers = names | group[0], sorted([*numbers, *group[1]])
            else:
                apart.append(group)
        groups = [*apart, (names, numbers)]
    return [[steps[number] for number in numbers] for _, numbers in groups]


def _some_lengths(full: Sequence[int]) -> Iterator[Sequence[int]]:
    nothing = [0] * len(full)
    yield nothing
    yield full
    for number, length in enumerate(full):
        for count in range(length + 1):
            yield [*full[:number], count, *full[number + 1 :]]
            yield [*nothing[:number], count, *nothing[number + 1 :]]


def _choices(count: int, effort: Effort) -> Iterator[tuple[int, ...]]:
    """Choose which of `count` operations are kept."""
    everything = range(count)
    if count <= effort.subsets_up_to:
        for size in range(count + 1):
            yield from combinations(everything, size)
        return
    for size in range(count + 1):
        yield tuple(everything[:size])
    for number in everything:
        yield (number,)
        yield (*everything[:number], *everything[number + 1 :])


def _content(before: bytes, operations: Iterable[Operation]) -> bytes:
    tree = Tree({0: before}, {})
    for operation in operations:
        if isinstance(operation, Write | Resize):
            tree.apply(attrs.evolve(operation, node=0))
    return tree.files[0]
