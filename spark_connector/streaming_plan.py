"""Read the options of a streaming query's sources from its plan in the JVM.

Spark's API does not tell them, so this reads what Spark has under the surface (4.2 and 4.3). The
plan is there from the query's start on, before its sources are made.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

FORMAT = "kgroup"


def read_source_options(spark: SparkSession, query_id: str) -> list[Mapping[str, str] | None]:
    """Return the options of each source, in the order of a progress's sources; None: not ours.

    Raises any error of the JVM, and LookupError if the query has ended.
    """
    query = spark.streams.get(query_id)
    if query is None:
        raise LookupError(f"query {query_id} is not active")
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()

    # Spark makes one source of equal relations.
    relations: list[Any] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.isStreaming() and not any(leaf.equals(other) for other in relations):
            relations.append(leaf)
    return [_options_of(relation) for relation in relations]


def _options_of(relation: Any) -> Mapping[str, str] | None:
    # Sources of Spark's older API have another class, and are never ours.
    if relation.getClass().getSimpleName() != "StreamingRelationV2":
        return None
    if relation.table().name() != FORMAT:
        return None
    return dict(relation.extraOptions().asCaseSensitiveMap())
