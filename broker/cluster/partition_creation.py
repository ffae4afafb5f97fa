"""Add partitions to a topic in ZooKeeper, for CreatePartitions.

The controller watches the topic's node and does the rest. The node is written over the version that
was read, so that concurrent writes (a reassignment, other partitions) are not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from broker.controller.topic_changes import Assignment, check_size
from broker.process.zk_retry import retry_until_connected
from protocol.errors import ApiError, ErrorCode
from zk.api import BadVersion, NoNode, SessionExpired, ZkSession
from zk.znodes import TopicAssignment


async def add_partitions(
    zk: ZkSession, topic: str, plan: Callable[[Assignment], Assignment], *, validate_only: bool
) -> None:
    """Add the partitions that `plan(existing partitions)` returns.

    Raises what `plan` raises, ApiError(UNKNOWN_TOPIC_OR_PARTITION), and ApiError(NOT_CONTROLLER)
    when the session ends meanwhile. A write whose reply was lost counts as done if the node holds
    what was written.
    """
    path = TopicAssignment.path(topic)
    written: bytes | None = None
    while True:
        try:
            data, stat = await retry_until_connected(zk, lambda: zk.get(path))
            if written is not None and data == written:
                # The last write was carried out: only its reply was lost.
                return

            # Plan on the partitions that are there now.
            node = TopicAssignment.decode(data, path)
            added = plan(node.partitions)
            grown = attrs.evolve(node, partitions={**node.partitions, **added})
            check_size(grown)
            if validate_only:
                return

            written = grown.encode()
            await retry_until_connected(zk, partial(zk.set, path, written, stat.version))
            return
        except NoNode:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
            ) from None
        except SessionExpired:
            # A broker without a session is no controller any more (fault outside-O17).
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"The session ended: {topic}") from None
        except BadVersion:
            # Another write came between: plan again.
            continue
