"""The metadata of a query's commits, by which they are told from everybody else's.

A planning process has a run, which is in the metadata of all its commits:
`spark run=1795532355224-1f3a9c04`. The listener on the driver commits for it, under the same run,
and adds the query and the batch. The metadata of a query's first position begins with `initial`.
"""

import re
from collections.abc import Iterable

import attrs

INITIAL = "initial"
"""First word of the metadata of a position at which a query was to begin."""

MOST_BYTES = 3_072
"""Bound on `commit.metadata`. Kafka allows 4,096 bytes, and run, query and batch need some."""

MOST_QUERY_CHARS = 200
"""Characters of a query's name that are committed."""

_RUN = re.compile(r"(?:^| )run=(\d{1,19})-([0-9a-f]{4,8})(?= |$)")


@attrs.frozen(order=True)
class Run:
    """A planning process of a query. One that began later is greater."""

    start_ms: int
    """When it began; greater than that of the run before it, whatever the clocks say."""
    token: str
    """A few random hex digits: two runs may begin in the same millisecond."""

    def __str__(self) -> str:
        return f"{self.start_ms}-{self.token}"


def find_run(metadata: str) -> Run | None:
    """Return the run that made a commit; None if no query did."""
    match = _RUN.search(metadata)
    return Run(int(match[1]), match[2]) if match else None


def find_newest_run(metadata: Iterable[str]) -> Run | None:
    """Return the run that began last of those that made some commits."""
    return max((run for text in metadata if (run := find_run(text)) is not None), default=None)


def start_run(now_ms: int, token: str, before: Run | None) -> Run:
    """Return a new run, which is greater than the one that is there."""
    return Run(now_ms if before is None else max(now_ms, before.start_ms + 1), token)


def make_metadata(text: str, run: Run | None, query: str = "", batch_id: int | None = None) -> str:
    """Return the metadata of a commit: the user's text, the run, and the query's batch."""
    words = [text] if text else []
    if run is not None:
        words.append(f"run={run}")
    if query:
        words.append(f"query={'_'.join(query.split())[:MOST_QUERY_CHARS]}")
    if batch_id is not None:
        words.append(f"batch={batch_id}")
    return " ".join(words)


def is_initial(metadata: str) -> bool:
    """Return whether this is a query's first position, of which no batch has been committed."""
    return metadata.split(" ", 1)[0] == INITIAL


def is_by_query(metadata: str, own_text: str) -> bool:
    """Return whether a query made a commit, and nobody else.

    Queries of before runs were introduced committed `initial`, or `commit.metadata` alone.
    """
    if find_run(metadata) is not None or metadata == INITIAL:
        return True
    return metadata != "" and metadata == own_text


def check_metadata(text: str) -> str | None:
    """Return why a text cannot be `commit.metadata`; None if it can."""
    if is_initial(text):
        return f"begins with {INITIAL}, which marks the first position of a query"
    if _RUN.search(text):
        return "has run=, by which the commits of a query are known"
    if len(text.encode()) > MOST_BYTES:
        return f"has more than {MOST_BYTES} bytes"
    return None
