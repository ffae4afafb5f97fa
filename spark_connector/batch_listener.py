"""Commit the end of a batch query to its group when Spark says that the query has succeeded.

Spark tells a QueryExecutionListener in the JVM, with the plan that was executed. What the plan
reads from us carries its end, see `batch_reader.EndOfQuery`. Only a query that writes is committed:
who counts or looks at rows has not processed them.
"""

import logging
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from clients.errors import KgroupError
from protocol.settings import SettingError
from spark_connector.batch_commit import commit_offsets
from spark_connector.batch_reader import EndOfQuery, LastPartition
from spark_connector.stream_offset import at_most
from spark_connector.streaming_plan import FORMAT

logger = logging.getLogger(__name__)

_WRITES = (
    "org.apache.spark.sql.execution.command.DataWritingCommandExec",
    "org.apache.spark.sql.execution.datasources.v2.V2TableWriteExec",
)
"""Classes of the plans of queries that write."""

_INNER = {
    "AdaptiveSparkPlanExec": lambda plan: plan.executedPlan(),
    "InMemoryTableScanExec": lambda plan: plan.relation().cachedPlan(),
}
"""Leaves of a plan that have a plan of their own, as stages (`…QueryStageExec`) have."""


class BatchListener:
    """A QueryExecutionListener of the JVM. Its methods have the names of Java's."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        gateway: Any = spark.sparkContext._gateway
        load: Any = gateway.jvm.java.lang.Class.forName
        self._gateway = gateway
        self._writes = [load(name) for name in _WRITES]

    def register(self) -> None:
        """Register the listener with the session."""
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        self._spark._jsparkSession.listenerManager().register(self)

    def onSuccess(self, name: str, execution: Any, duration_ns: int) -> None:
        """Commit what the query has read, if it has written."""
        try:
            plan = execution.executedPlan()
            if self._is_write(plan):
                for end in least_ends(self._find_ends(plan)):
                    self._commit(end)
        except Exception as error:
            # Spark's inner classes may change, and Spark only logs an error of a listener.
            logger.warning("a batch query's plan cannot be read, nothing is committed: %s", error)

    def onFailure(self, name: str, execution: Any, error: Any) -> None:
        """Do nothing: the group stays where it is."""

    class Java:
        """Tell py4j what this implements."""

        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)

    def _is_write(self, plan: Any) -> bool:
        if any(write.isInstance(plan) for write in self._writes):
            return True

        # Adaptive execution may hold the write as its last stage.
        inner = _inner_plan(plan)
        return inner is not None and self._is_write(inner)

    def _find_ends(self, plan: Any) -> Iterator[EndOfQuery]:
        """Yield the ends of what a plan reads from us."""
        leaves = plan.collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if (inner := _inner_plan(leaf)) is not None:
                yield from self._find_ends(inner)
            elif leaf.getClass().getSimpleName() == "BatchScanExec":
                yield from _read_end(leaf)

    def _commit(self, end: EndOfQuery) -> None:
        try:
            commit_offsets(end.options, end.offsets)
        except (KgroupError, SettingError) as error:
            logger.warning(
                "group %s: the end of a batch query is not committed: %s",
                end.options.commit_group_id,
                error,
            )


def least_ends(ends: Iterable[EndOfQuery]) -> list[EndOfQuery]:
    """Return one end for each group: where scans of a partition end differently, the least.

    Each load of a topic is planned by itself, so records came in between, which one of them has
    not read.
    """
    least: dict[tuple[frozenset[str], str | None], EndOfQuery] = {}
    for end in ends:
        options = end.options
        servers = frozenset(options.client.bootstrap_servers)
        other = least.get((servers, options.commit_group_id), EndOfQuery(options, {}))

        offsets = {**other.offsets, **end.offsets}
        # The end of one scan is behind what another one has read (fault core-R6).
        offsets |= at_most(end.offsets, other.offsets)
        least[servers, options.commit_group_id] = EndOfQuery(other.options, offsets)
    return list(least.values())


def _inner_plan(plan: Any) -> Any | None:
    name = plan.getClass().getSimpleName()
    if name in _INNER:
        return _INNER[name](plan)
    return plan.plan() if name.endswith("QueryStageExec") else None


def _read_end(scan: Any) -> Iterator[EndOfQuery]:
    if scan.table().name() != FORMAT:
        return
    partitions = scan.inputPartitions()
    for number in range(partitions.size()):
        # Its fields by number: their names differ between versions.
        partition = pickle.loads(bytes(partitions.apply(number).productElement(1)))
        if isinstance(partition, LastPartition):
            yield partition.end
