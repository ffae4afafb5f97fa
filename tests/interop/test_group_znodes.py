"""The znodes of a member of ours and of one on the JVM, node by node: nobody can tell who is who.

Masked is what differs between any two members: the group's name, and the member's time and bits.
"""

import asyncio
import contextlib
import re
from functools import partial
from pathlib import Path

import pytest

from tests.interop.kafka_cluster import Cluster, unique
from tests.interop.mixed_group import Messages, MixedGroup, Wanted, values_of
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import compiled
from tests.stage.zookeeper import zookeeper_session
from zk.api import NoNode, ZkSession

VERSION = "1.1.1"
PATIENCE_S = 60.0
PARTITIONS = 3
MASKS = ((rb"-\d{13}-[0-9a-f]{8}\b", b"-TIME-BITS"), (rb'"\d{13}"', b'"TIME"'))

Node = tuple[bytes | None, bool]
"""Its content, None if empty, and whether it is ephemeral. In directories 0.8 wrote null, as we do,
and 1.1 sometimes no bytes."""


async def nodes_below(zk: ZkSession, path: str) -> dict[str, Node]:
    """All of them by path."""
    content, stat = await zk.get(path)
    found: dict[str, Node] = {path: (content or None, stat.ephemeral_owner != 0)}
    for name in (await zk.children(path))[0]:
        found |= await nodes_below(zk, f"{path}/{name}")
    return found


def masked(text: bytes, group: str) -> bytes:
    text = text.replace(group.encode(), b"GROUP")
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return text


async def nodes_of_member(
    kind: str, cluster: Cluster, directory: Path, wanted: Wanted, said: Messages
) -> dict[bytes, Node]:
    """The group's, while a member goes on that has consumed and committed all there is.

    One on the JVM may rebalance once more when it has begun: its owner nodes go and come back.
    """
    group_id = unique("g")
    root = f"/consumers/{group_id}"
    ends = {f"{root}/offsets/{p.topic}/{p.partition}": o + 1 for p, o, _ in sorted(said)}
    wanted_nodes = {path: (b"%d" % end, False) for path, end in ends.items()}
    owners = {f"{root}/owners/{p.topic}/{p.partition}" for p, _, _ in said}
    settings = {"auto.commit.interval.ms": "300"}
    with MixedGroup(
        cluster.zookeeper, group_id, directory, {}, wanted, settings, is_named=False
    ) as group:
        start = group.start_ours if kind == "ours" else partial(group.start_jvm, VERSION)
        start("m", streams=2)
        await group.hears(values_of(said), PATIENCE_S)
        found: dict[str, Node] = {}
        async with zookeeper_session(cluster.zookeeper) as zk, asyncio.timeout(PATIENCE_S):
            while not (wanted_nodes.items() <= found.items() and owners <= found.keys()):
                with contextlib.suppress(NoNode):  # it went while the others were read
                    found = await nodes_below(zk, root)
        await group.leave("m")
    return {
        masked(path.encode(), group_id): (content and masked(content, group_id), is_ephemeral)
        for path, (content, is_ephemeral) in found.items()
    }


@pytest.mark.parametrize("kind", ["topic", "whitelist"])
async def test_nobody_can_tell_a_member_of_ours_from_one_on_the_jvm(
    dev_cluster: DevCluster, tmp_path: Path, kind: str
) -> None:
    compiled(VERSION)
    cluster = Cluster(dev_cluster.address("bootstrap"), dev_cluster.address("zookeeper"))
    topic = unique("t")
    await cluster.create_topic(topic, PARTITIONS)
    said = await cluster.produce({topic: PARTITIONS}, "said", 12)
    wanted = (kind, topic if kind == "topic" else f"{topic},{topic}-.+")
    jvm, ours = [
        await nodes_of_member(side, cluster, tmp_path / side, wanted, said)
        for side in ("jvm", "ours")
    ]
    assert ours == jvm
    assert sum(is_ephemeral for _, is_ephemeral in ours.values()) == 1 + PARTITIONS
