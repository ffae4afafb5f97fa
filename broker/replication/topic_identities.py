"""The identities of topics, as this broker has read them from ZooKeeper.

LeaderAndIsr names a topic, and says nothing of which one of that name it is. So the broker reads
the topic's znode, whoever is the controller: once for each topic and session, and again where the
topic may have been deleted and created since (`needs`). A controller that takes over thousands of
topics causes no read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import attrs

from broker.process.zk_retry import retry_until_connected
from protocol.topic_identity import TopicIdentity, derive_topic_id
from zk.api import SessionState, Stat, ZkError, ZkSession
from zk.znodes import ClusterId, TopicAssignment, ZnodeError

logger = logging.getLogger(__name__)

TOPICS_PER_TURN = 200
"""Topics whose nodes are parsed in one turn of the loop: a few milliseconds."""

Read = Callable[[Sequence[str]], Awaitable[Mapping[str, TopicIdentity]]]
"""Reads the identities of topics; those that do not exist are left out. Raises ZkError."""


@attrs.define(eq=False)
class TopicIdentities:
    """The identities of the topics that control requests have named.

    `timeout_ms` is how long a control request waits for ZooKeeper: as long as it may be silent
    before it ends the session, after which the controller tells this broker everything again.
    """

    read: Read
    timeout_ms: int
    _known: dict[str, TopicIdentity] = attrs.field(factory=dict)
    _unread: set[str] = attrs.field(factory=set)
    """Topics that ZooKeeper was asked for in vain."""
    _session: int = 0
    """Number of the session: what was read in an earlier one is not trusted."""

    def follow(self, zk: ZkSession) -> None:
        """Forget all identities whenever the session has ended."""
        zk.add_state_listener(self._session_changed)

    def get(self, topic: str) -> TopicIdentity | None:
        """Return the identity of a topic; None if it is not known."""
        return self._known.get(topic)

    def is_unread(self, topic: str) -> bool:
        """Return whether nobody knows which topic it is because ZooKeeper did not answer."""
        return topic in self._unread

    def forget(self, topics: Iterable[str]) -> None:
        """Forget topics that are deleted: another one may have the name."""
        for topic in topics:
            self._known.pop(topic, None)
            self._unread.discard(topic)

    async def learn(self, topics: Iterable[str]) -> None:
        """Read these topics. Those that cannot be read, or do not exist, are not known then."""
        asked = sorted(topics)
        self.forget(asked)
        session = self._session
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                identities = await self.read(asked)
        except (ZkError, TimeoutError) as error:
            logger.warning(
                "%d topics cannot be told from earlier ones of their names, ZooKeeper does not "
                "answer: %r",
                len(asked),
                error,
            )
            self._unread.update(asked)
            return
        if session == self._session:
            self._known.update(identities)

    def _session_changed(self, state: SessionState) -> None:
        # Anything may have happened while this broker had no session.
        if state is SessionState.EXPIRED:
            self._session += 1
            self._known.clear()
            self._unread.clear()


async def read_identities(
    zk: ZkSession, cluster_id: str, topics: Sequence[str]
) -> dict[str, TopicIdentity]:
    """Read the identities of topics; those that do not exist are left out. Raises ZkError."""
    # Our server may be behind the one that the controller wrote to: a topic may have been created
    # again, and the node that is read must not be the earlier one's.
    await retry_until_connected(zk, lambda: zk.sync(TopicAssignment.directory()))
    above = [ClusterId.path(), TopicAssignment.directory()]
    paths = [*above, *map(TopicAssignment.path, topics)]
    cluster_node, topics_node, *nodes = await retry_until_connected(zk, lambda: zk.get_many(paths))
    if cluster_node is None or topics_node is None:
        return {}

    identities = {}
    for number, (topic, node) in enumerate(zip(topics, nodes, strict=True), start=1):
        if node is not None:
            identities[topic] = identity_of(
                topic, cluster_id, node, cluster_node[1], topics_node[1]
            )
        # Others have their turn.
        if number % TOPICS_PER_TURN == 0:
            await asyncio.sleep(0)
    return identities


def identity_of(
    topic: str, cluster_id: str, node: tuple[bytes | None, Stat], cluster: Stat, topics: Stat
) -> TopicIdentity:
    """Return the identity of the topic with this znode.

    `cluster` is the Stat of /cluster/id, `topics` that of the directory of topics.
    """
    data, stat = node
    try:
        pinned_id = TopicAssignment.read_topic_id(data)
    except ZnodeError:
        # The node is there, whatever is written in it.
        pinned_id = None

    derived_id = derive_topic_id(cluster_id, topic, stat.czxid)
    topic_id = pinned_id or derived_id
    return TopicIdentity(
        topic_id=topic_id,
        is_pinned=pinned_id is not None,
        topic_czxid=stat.czxid,
        cluster_czxid=cluster.czxid,
        cluster_ctime_ms=cluster.ctime_ms,
        topics_czxid=topics.czxid,
        is_derived=topic_id == derived_id,
    )
