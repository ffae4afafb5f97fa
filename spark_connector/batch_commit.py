"""Commit to a group what a batch query has read.

Spark does not tell a Python source that a batch query has succeeded. Where `kgroup.spark.install`
has installed a listener, the option `commit.on` is enough. Elsewhere the query's end is fixed
before it starts, and committed when the caller knows that it has succeeded:

    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights",
               "startingOffsets": "group", "commit.group.id": "etl"}
    end = find_end(options)
    df = spark.read.format("kgroup").options(**options, endingOffsets=end).load()
    df.write.parquet("/flights")
    commit_end(options, end)
"""

import json
import time
from collections.abc import Mapping
from contextlib import closing

from protocol.settings import SettingError
from protocol.topic_partition import OffsetAndMetadata
from spark_connector.log_offsets import Brokers, Connect, SubscribedLogs, connect_admin
from spark_connector.options import SourceOptions, read_options
from spark_connector.stream_offset import Offsets, from_json, to_json


def find_end(options: Mapping[str, str], *, connect: Connect = connect_admin) -> str:
    """Return where a batch query with these options would end now, as `endingOffsets`.

    Raises SettingError, BrokerError, ClientError.
    """
    config = read_options(options, streaming=False)
    with closing(_connect(config, connect)) as brokers:
        log = SubscribedLogs(brokers, config, time.monotonic)
        return json.dumps(to_json(log.at(log.ending(log.partitions()))))


def commit_end(options: Mapping[str, str], end: str, *, connect: Connect = connect_admin) -> None:
    """Commit the end of a batch query that has succeeded to `commit.group.id`.

    Raises SettingError if no group is named or it has members; BrokerError, ClientError.
    """
    config = read_options({**options, "endingOffsets": end}, streaming=False)
    commit_offsets(config, from_json(json.loads(end)), connect=connect)


def commit_offsets(
    config: SourceOptions, end: Offsets, *, connect: Connect = connect_admin
) -> None:
    """Commit the end of a batch query to its group. Raises as `commit_end`."""
    group = config.commit_group_id
    if group is None:
        raise SettingError("commit.group.id", "is required to commit the end of a batch query")

    offsets = {
        partition: OffsetAndMetadata(offset, config.commit_metadata)
        for partition, offset in end.items()
    }
    with closing(_connect(config, connect)) as brokers:
        members = brokers.describe_groups([group])[group].group.members
        if members:
            raise SettingError(
                "commit.group.id",
                f"group {group} has {len(members)} members; a query needs a group of its own",
            )
        brokers.commit_group_offsets(group, offsets)


def _connect(config: SourceOptions, connect: Connect) -> Brokers:
    return connect(config.client.cluster_settings)
