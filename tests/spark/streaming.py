"""Start streaming queries, and wait for them.

Spark gives a query's planning process 10 s to connect, which no setting can change. On a busy
machine that is too short to import it. Nothing has happened by then, so the query is started again.
"""

from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.stage.waiting import block_until

DEADLINE_S = 90


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query; its planning process has connected."""
    query = writer.start()
    while _gave_up_at_its_start(query):
        query = writer.start()
    return query


def run_to_its_end(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query that ends by itself. Raises StreamingQueryException if it fails."""
    query = start(writer)
    try:
        assert query.awaitTermination(DEADLINE_S), query.status
    finally:
        query.stop()
    return query


def until_running_query(query: StreamingQuery, holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds, while the query must not end."""

    def ended_or_holds() -> bool:
        assert query.isActive, query.exception()
        return holds()

    block_until(ended_or_holds, what, DEADLINE_S)


def _gave_up_at_its_start(query: StreamingQuery) -> bool:
    """Return whether Spark gave up waiting for the query's planning process."""
    block_until(
        lambda: not query.isActive or not query.status["message"].startswith("Initializing"),
        "the query's start",
        DEADLINE_S,
    )
    return "Python worker failed to connect back" in str(query.exception())
