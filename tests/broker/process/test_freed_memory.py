"""Memory that was needed once goes back to the system; what usual requests need does not."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from broker.process.freed_memory import (
    FIRST_PAUSE_MS,
    LET_BE_BYTES,
    LONGEST_PAUSE_MS,
    FreedMemory,
)

SMALL = 60 * 2**20
LARGE = SMALL + LET_BE_BYTES + 1


@attrs.define(eq=False)
class Process:
    """A process of a size that the test sets; giving back changes it to `after`."""

    size: int = SMALL
    after: int = SMALL
    now_ms: int = 0
    given_back: list[int] = attrs.field(factory=list)

    def give_back(self) -> None:
        self.given_back.append(self.now_ms)
        self.size = self.after

    def look_until(self, memory: FreedMemory, end_ms: int) -> None:
        while self.now_ms < end_ms:
            self.now_ms += FIRST_PAUSE_MS
            memory.look()


def started() -> tuple[Process, FreedMemory]:
    process = Process()
    return process, FreedMemory(lambda: process.size, process.give_back, lambda: process.now_ms)


def test_nothing_is_given_back_of_what_is_let_be() -> None:
    process, memory = started()
    process.size = SMALL + LET_BE_BYTES
    process.look_until(memory, 100_000)
    assert process.given_back == []


def test_growth_is_given_back_at_the_next_look() -> None:
    process, memory = started()
    process.size = LARGE
    process.look_until(memory, 100_000)
    assert process.given_back == [FIRST_PAUSE_MS]


def test_what_is_needed_is_tried_again_seldom_and_given_back_when_it_is_free() -> None:
    process, memory = started()
    process.size = process.after = LARGE
    process.look_until(memory, 600_000)
    pauses = [b - a for a, b in zip(process.given_back, process.given_back[1:], strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_MS

    # The flood is over.
    process.after = SMALL
    process.look_until(memory, process.now_ms + LONGEST_PAUSE_MS)
    assert process.size == SMALL


FLOOD = """
import threading
from broker.process.freed_memory import *
keep_freed_memory()
kept = []

def round(size, count):
    made = []
    def make():
        # A small block beside each large one, which stays.
        for _ in range(count):
            made.append(bytes(size))
            kept.append(bytes(2000))
    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

before = resident_bytes()
for _ in range(3):
    round(10_000_000, 5)
print(resident_bytes() - before)
for size, count in ((900_000, 50), (200_000, 200)):
    for _ in range(3):
        round(size, count)
give_back()
print(resident_bytes() - before)
"""
LITTLE_BYTES = 16 * 2**20


@pytest.mark.fault("scale-S2")
def test_large_blocks_that_threads_made_and_others_freed_are_not_kept() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only glibc keeps freed memory so")
    done = subprocess.run([sys.executable, "-P", "-c", FLOOD], capture_output=True, text=True)
    after_large_ones, after_all = map(int, done.stdout.split())
    # Large blocks go back at once, the others when memory is given back.
    assert after_large_ones <= LITTLE_BYTES
    assert after_all <= LET_BE_BYTES
