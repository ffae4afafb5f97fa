"""The clients of a Python worker process: tasks borrow them, so connections outlive a task.

Spark keeps its Python workers, and one runs thousands of short tasks, one after the other. A client
has the cluster's metadata and its connections, and an event loop in a thread of its own, on which
the next fetch is in flight while the task hands the last one to Spark.

A borrowed client may be out of date: its cluster refreshes metadata that a broker denies, and opens
connections that were lost. What a fork has copied is not used, because it has no thread.
"""

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import attrs

from clients.cluster import Cluster
from clients.loop_thread import LoopThread
from spark_connector.options import ReaderConfig

T = TypeVar("T")

MOST_CLIENTS = 4
"""Bound on the clients that rest: queries on more clusters than these connect again."""

LONGEST_REST_S = 240.0
"""Time after which a client is not borrowed again: something in between may have forgotten its
connections, and that would take a request's time-out to notice."""


class WorkerClient:
    """A cluster's client, with its event loop in a thread."""

    def __init__(self, config: ReaderConfig) -> None:
        self.cluster = Cluster(config.bootstrap_servers, config=config)
        self._loop = LoopThread("kgroup-fetches")

    @property
    def is_running(self) -> bool:
        """True until it is closed."""
        return self._loop.is_running

    def iterate_ahead(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Iterate on the client's loop, always one item ahead of the caller. No item is None."""

        async def take() -> T | None:
            return await anext(items, None)

        ahead = self._loop.start(take())
        try:
            while (item := ahead.result()) is not None:
                ahead = self._loop.start(take())
                yield item
        finally:
            # The caller may stop early, as for a LIMIT.
            ahead.cancel()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        self._loop.call(self.cluster.close())
        self._loop.stop()


@attrs.define(eq=False)
class _Resting:
    """A client that nobody uses, and since when."""

    client: WorkerClient
    since_s: float
    process_id: int


class WorkerClients:
    """Clients to borrow, by their settings. Several threads may do so."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._resting: dict[ReaderConfig, _Resting] = {}
        """The one that has rested longest comes first."""

    @contextmanager
    def borrow(self, config: ReaderConfig) -> Iterator[WorkerClient]:
        """Lend a client that rests, or a new one; nobody else has it meanwhile."""
        client = self._take(config) or WorkerClient(config)
        try:
            yield client
        finally:
            for leaving in self._put(config, client):
                leaving.close()

    def close(self) -> None:
        """Close the clients that rest."""
        with self._lock:
            leaving = list(self._resting.values())
            self._resting.clear()
        for other in leaving:
            if other.process_id == os.getpid():
                other.client.close()

    def _take(self, config: ReaderConfig) -> WorkerClient | None:
        with self._lock:
            resting = self._resting.pop(config, None)

        # Another process has the thread of what was forked, and its connections.
        if resting is None or resting.process_id != os.getpid():
            return None
        if self._now_s() - resting.since_s > LONGEST_REST_S:
            resting.client.close()
            return None
        return resting.client

    def _put(self, config: ReaderConfig, client: WorkerClient) -> list[WorkerClient]:
        """Let a client rest; return those that must be closed for it."""
        with self._lock:
            leaving = [self._resting.pop(config)] if config in self._resting else []
            self._resting[config] = _Resting(client, self._now_s(), os.getpid())
            if len(self._resting) > MOST_CLIENTS:
                leaving.append(self._resting.pop(next(iter(self._resting))))
        return [other.client for other in leaving if other.process_id == os.getpid()]


CLIENTS = WorkerClients()
"""The clients of this process. Spark gives a task nothing else that outlives it."""
