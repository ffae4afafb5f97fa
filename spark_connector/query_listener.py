"""Follow streaming queries on the driver: commit the end of each batch, and tell how far it is.

Spark reports a batch when it is in the query's commit log. So the listener commits what the
planning process can commit at the next trigger only, which never comes after `Trigger.Once` or a
stop. A commit that fails is a warning: the planning process makes up for it.

Spark waits for its listeners, so the brokers are called on a thread of the listener's own. While
they are away, of each query only the last batch waits for it.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from clients.cluster import Cluster
from clients.first_timestamps import read_first_timestamps
from clients.groups.lag import age_of
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from spark_connector.batch_place import commit_batch_end
from spark_connector.behind_latest import BehindLatest, find_behind_latest
from spark_connector.client_options import impatient
from spark_connector.log_offsets import Brokers, Connect, connect_admin
from spark_connector.options import ReaderConfig, SourceOptions, read_options
from spark_connector.stream_offset import Offsets, from_json_text
from spark_connector.streaming_plan import read_source_options

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 15_000
"""Bound on the time of one call of the brokers."""
MOST_QUERIES = 1_000
"""Queries whose last progress is kept."""


@attrs.define(eq=False)
class SourceState:
    """A source of ours in a query, after its last batch."""

    options: SourceOptions
    end: Offsets
    behind: BehindLatest | None
    """None if Spark did not say where the logs end, as after a batch that was run again."""
    time_lag_ms: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    """The age of the first record that was not read, with `time_lag`; 0 if all were. A partition is
    left out if it is not known: its record may be dated in the future."""


@frozen
class QueryState:
    """A query after its last batch."""

    query: str
    """The query's name, or its id if it has none."""
    batch_id: int
    sources: tuple[SourceState, ...]


class KgroupQueryListener(StreamingQueryListener):
    """A listener for all streaming queries of a session."""

    def __init__(
        self,
        options_by_query: Mapping[str, Mapping[str, str]] | None = None,
        *,
        session: SparkSession | None = None,
        time_lag: bool = False,
        connect: Connect = connect_admin,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Listen to the queries in `options_by_query`, by name, whose sources have these options.

        With a `session`, which is not a Spark Connect client's, other queries tell theirs.
        """
        self._given = {
            name: read_options(options, streaming=True)
            for name, options in (options_by_query or {}).items()
        }
        self._session = session
        self._time_lag = time_lag
        self._connect = connect
        self._now_ms = now_ms

        # By query id. The lock is for what the thread of calls uses too.
        self._options: dict[str, list[SourceOptions | None]] = {}
        self._states: dict[str, QueryState] = {}
        self._lock = threading.Lock()
        self._waiting: dict[str, QueryState] = {}
        """Batches that are to be committed."""
        self._clients: dict[ReaderConfig, Brokers] = {}
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="kgroup-listener")

    def progress(self, query: StreamingQuery | str) -> QueryState | None:
        """Return a query after its last batch: by its name, its id, or itself."""
        names = {query} if isinstance(query, str) else {str(query.id)}
        for query_id, state in list(self._states.items()):
            if names & {query_id, state.query}:
                return state
        return None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Read the query's options: a short query may be gone when its progress comes."""
        self._options[str(event.id)] = self._read_options(str(event.id), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log how far the query is, and have the end of its batch committed."""
        progress = event.progress
        query_id = str(progress.id)
        if query_id not in self._options:
            self._options[query_id] = self._read_options(query_id, progress.name)

        sources = _match(progress, self._options[query_id])
        if not sources:
            return
        state = QueryState(progress.name or query_id, progress.batchId, tuple(sources))
        self._states.pop(query_id, None)
        self._states[query_id] = state
        if len(self._states) > MOST_QUERIES:
            del self._states[next(iter(self._states))]
        for source in sources:
            _log(state, source)

        # A batch that still waits is replaced: the last one says all.
        with self._lock:
            is_waiting = query_id in self._waiting
            self._waiting[query_id] = state
        if not is_waiting:
            self._calls.submit(self._report, query_id)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close the clients that no query needs any longer."""
        self._options.pop(str(event.id), None)
        needed = {
            source.client for sources in self._options.values() for source in sources if source
        }
        self._calls.submit(self._close_others, needed)

    def flush(self) -> None:
        """Wait until what has been reported is committed."""
        self._calls.submit(lambda: None).result()

    def _read_options(self, query_id: str, name: str | None) -> list[SourceOptions | None]:
        """Return the options of the query's sources; [] if they cannot be known."""
        if name in self._given:
            return [self._given[name]]
        if self._session is None:
            return []
        try:
            read = read_source_options(self._session, query_id)
            return [None if o is None else read_options(o, streaming=True) for o in read]
        except Exception as error:
            # Spark's inner classes may change, and a query does not fail for its listener.
            logger.warning(
                "query %s: its options cannot be read, so the listener does nothing for it; give "
                "them to KgroupQueryListener: %s",
                name or query_id,
                error,
            )
            return []

    # ---- on the thread of calls

    def _report(self, query_id: str) -> None:
        with self._lock:
            state = self._waiting.pop(query_id)
        for source in state.sources:
            try:
                self._commit(state, source)
                if self._time_lag:
                    source.time_lag_ms = asyncio.run(read_time_lag(source, self._now_ms()))
            except Exception as error:
                # Nobody else would hear of an error on this thread.
                logger.warning(
                    "query %s, batch %d: group %s is not up to date for now: %s",
                    state.query,
                    state.batch_id,
                    source.options.committed_group or "none",
                    error,
                )

    def _commit(self, state: QueryState, source: SourceState) -> None:
        options = source.options
        if options.committed_group is None:
            return
        commit_batch_end(
            self._client(options.client),
            options.committed_group,
            source.end,
            options.commit_metadata,
            state.query,
            state.batch_id,
        )

    def _client(self, config: ReaderConfig) -> Brokers:
        if config not in self._clients:
            settings = impatient(config.cluster_settings, CALL_TIMEOUT_MS)
            self._clients[config] = self._connect(settings)
        return self._clients[config]

    def _close_others(self, needed: set[ReaderConfig]) -> None:
        for config in self._clients.keys() - needed:
            self._clients.pop(config).close()


def _match(
    progress: StreamingQueryProgress, options: list[SourceOptions | None]
) -> list[SourceState]:
    """Return the sources of ours in a progress. Options that were given go for each of them."""
    reported = progress.sources
    of_each = (
        options if len(options) == len(reported) else [o for o in options[:1] for _ in reported]
    )
    states = []
    for source, own in zip(reported, of_each, strict=False):
        end = from_json_text(source.endOffset)
        if own is None or not end or not all(map(own.subscription.includes, end)):
            continue
        states.append(SourceState(own, end, _find_behind(source, end)))
    return states


def _find_behind(source: SourceProgress, end: Offsets) -> BehindLatest | None:
    latest = from_json_text(source.latestOffset)
    return find_behind_latest(end, latest) if latest else None


def _log(state: QueryState, source: SourceState) -> None:
    # Spark's description of a source in Python names a Java class only.
    behind = source.behind
    logger.info(
        "query %s, batch %d: topics %s, group %s: %s offsets behind the latest",
        state.query,
        state.batch_id,
        ", ".join(sorted({partition.topic for partition in source.end})),
        source.options.committed_group or "none",
        "an unknown number of" if behind is None else behind.total,
    )


async def read_time_lag(source: SourceState, now_ms: int) -> dict[TopicPartition, int]:
    """Return how old the first record is that the query has not read, where there is one."""
    config = source.options.client
    behind = {} if source.behind is None else source.behind.by_partition
    lags: dict[TopicPartition, int] = {p: 0 for p, offsets in behind.items() if not offsets}
    late = {p: source.end[p] for p, offsets in behind.items() if offsets}
    if not late:
        return lags

    cluster = Cluster(config.bootstrap_servers, config=config)
    try:
        first_ms = await read_first_timestamps(cluster, late, config.isolation)
    finally:
        await cluster.close()
    ages = {partition: age_of(at_ms, now_ms) for partition, at_ms in first_ms.items()}
    return lags | {partition: age_ms for partition, age_ms in ages.items() if age_ms is not None}
