"""Find out which topics exist no longer, for a coordinator that has just loaded their offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from broker.process.zk_retry import retry_until_connected
from zk.api import ZkError, ZkSession
from zk.znodes import DeleteTopic, TopicAssignment

logger = logging.getLogger(__name__)


async def find_deleted(
    zk: ZkSession, has_topic: Callable[[str], bool], topics: Set[str]
) -> Set[str]:
    """Return those of these topics that do not exist, or are being deleted.

    `has_topic` says what the metadata know, which may be nothing yet: ZooKeeper decides.
    """
    unknown = {topic for topic in topics if not has_topic(topic)}
    if not unknown:
        return unknown

    try:
        names, _ = await retry_until_connected(zk, lambda: zk.children(TopicAssignment.directory()))
        marked, _ = await retry_until_connected(zk, lambda: zk.children(DeleteTopic.directory()))
    except ZkError as error:
        logger.warning("offsets of deleted topics are not looked for: %r", error)
        return frozenset()

    # It may have been created again meanwhile.
    deleted = (unknown - set(names)) | (unknown & set(marked))
    return {topic for topic in deleted if not has_topic(topic)}
