"""The services of a process to the parts of a broker: tasks, clocks, random numbers, threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from protocol.frozen import frozen

if TYPE_CHECKING:
    import asyncio
    import random

    from core_log.log_work import LogWork
    from protocol.metrics import Metrics


@frozen
class Process:
    """The process of one broker.

    - `spawn` runs a task for as long as the broker lives.
    - `touch` wakes the requests that wait under a key.
    - `now_ms` is the wall clock, for timestamps; `monotonic_ms` the loop's clock, for intervals.
    - `work` does the work on logs in the threads of `disk`.
    - `conversion` has the threads for batches that take long to check or convert.
    - `fail` stops the broker.
    - `metrics` has the figures of the broker.
    """

    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    touch: Callable[[Hashable], None]
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    rng: random.Random
    disk: Executor
    work: LogWork
    conversion: Executor
    fail: Callable[[BaseException], None]
    metrics: Metrics
