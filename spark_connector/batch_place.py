"""Commit the end of a finished batch from the driver, on behalf of the query's planning process."""

from collections.abc import Mapping

from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.commit_metadata import find_newest_run, find_run, make_metadata
from spark_connector.foreign_commits import GroupOffsets
from spark_connector.log_offsets import Brokers
from spark_connector.stream_offset import Offsets


def commit_batch_end(
    brokers: Brokers, group: str, end: Offsets, text: str, query: str, batch_id: int
) -> None:
    """Commit where a batch ended, if the group is behind that. Raises BrokerError, ClientError."""
    records = find_records(end, brokers.group_offsets(group, end), text, query, batch_id)
    if records:
        brokers.commit_group_offsets(group, records)


def find_records(
    end: Offsets, committed_now: GroupOffsets, text: str, query: str, batch_id: int
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Return what to commit: never back, and nothing over what is not a query's.

    Somebody may have moved the group; what that means is for the planning process to decide.
    """
    run = find_newest_run(committed.metadata for committed in committed_now.values())
    metadata = make_metadata(text, run, query, batch_id)

    records = {}
    for partition, offset in end.items():
        committed = committed_now.get(partition)
        is_behind = committed is None or committed.offset < offset
        if is_behind and (committed is None or find_run(committed.metadata) is not None):
            records[partition] = OffsetAndMetadata(offset, metadata)
    return records
