"""What the transactional producers in Python share: the lines that they read and write.

A line of standard input is a transaction, in words: "commit" or "abort"; the group whose offsets it
commits, or "-"; then "w TOPIC PARTITION VALUE" for each record and "o TOPIC PARTITION OFFSET" for
each offset.

Lines of standard output: "ready" when the producer has its id; "written VALUE OFFSET" for each
record; "ending" before a commit; then "committed" or "aborted". A process that can't go on with its
producer writes "failed REASON", and ends.
"""

from __future__ import annotations

import argparse
import sys

import attrs

TIMEOUT_S = 60.0
REQUEST_MS = 4000

Place = tuple[str, int]


@attrs.frozen
class Arguments:
    """Where the brokers are, and who asks."""

    bootstrap: str
    transactional_id: str
    timeout_ms: int
    """transaction.timeout.ms"""


@attrs.frozen
class Wanted:
    """A transaction."""

    commits: bool
    group: str
    writes: list[tuple[Place, str]]
    offsets: dict[Place, int]


def parse_arguments() -> Arguments:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--timeout-ms", type=int, required=True)
    return Arguments(**vars(parser.parse_args()))


def next_transaction() -> Wanted | None:
    """Wait for a line, and return what it asks for; None at the end of the input."""
    end, group, *words = sys.stdin.readline().split() or ("", "")
    if not end:
        return None

    wanted = Wanted(end == "commit", group, [], {})
    for first in range(0, len(words), 4):
        what, topic, partition, value = words[first : first + 4]
        place = topic, int(partition)
        if what == "w":
            wanted.writes.append((place, value))
        else:
            wanted.offsets[place] = int(value)
    return wanted


def say(*words: object) -> None:
    """Write a line."""
    print(*words, flush=True)


def fail(error: object) -> int:
    """Write why the producer is of no use any more; return the exit code."""
    say("failed", type(error).__name__, " ".join(str(error).split()))
    return 1
