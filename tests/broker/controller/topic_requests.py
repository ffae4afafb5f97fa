"""Requests that change topics."""

from protocol.messages.create_topics import (
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)


def topic(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, tuple[int, ...]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in (assignments or {}).items()
        ],
        configs=[
            CreateTopicsRequestConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
    )
