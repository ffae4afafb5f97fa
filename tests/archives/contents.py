"""What is in a cluster, as JSON: the same function looks before it is packed and after."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin
from clients.fetch_requests import Isolation
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.topic_contents import contents
from zk.api import ZkSession

SETTINGS_IN_ZOOKEEPER = ("/config", "/consumers", "/kafka-acl", "/kafka-acl-extended", "/kgroup")
"""Trees whose persistent nodes are the same, byte for byte."""
GROUP_EVENTS = "__group_events"
GROWING = ("open-transaction", GROUP_EVENTS)
"""Topics that a start may append to: the transaction is too old and is aborted, groups change."""
EMPTIED = "emptied"
"""A broker writes once a minute where logs begin: after a kill deleted records may be back."""
_TRANSIENT = ("/config/changes", "/kafka-acl-changes", "/kafka-acl-extended-changes")


def look(cluster: DevCluster) -> dict[str, Any]:
    """Return everything that a user would miss."""
    return asyncio.run(_look(cluster))


def missing(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say what is not there as it was."""
    faults = []
    for kind in expected.keys() - {"topics"}:
        for name in expected[kind].keys() | found[kind].keys():
            was, is_now = expected[kind].get(name), found[kind].get(name)
            if was != is_now:
                faults.append(f"{kind} {name}: {was} → {is_now}")

    for topic, partitions in expected["topics"].items():
        for number, was in enumerate(partitions):
            is_now = found["topics"][topic][number]
            if topic in GROWING:
                is_now = {
                    "start": is_now["start"],
                    "end": min(was["end"], is_now["end"]),
                    "records": is_now["records"][: len(was["records"])],
                    "committed": is_now["committed"][: len(was["committed"])],
                }
            if topic == EMPTIED and is_now["start"] < was["start"]:
                is_now = {**is_now, "start": was["start"], "records": [], "committed": []}
            if was != is_now:
                faults.append(f"{topic}-{number}: {was} → {is_now}")
    return faults


def journal(cluster: DevCluster) -> list[Any]:
    """The entries of the journal, as the command shows them."""
    done = cluster.run("kgroup", "journal", "-o", "json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["items"])


async def _look(cluster: DevCluster) -> dict[str, Any]:
    bootstrap = cluster.address("bootstrap")
    async with Admin(bootstrap) as admin, cluster.zookeeper_session() as zk:
        names = sorted(await admin.list_topics(internal=True))
        topics = await admin.describe_topics(names)
        partitions = {name: sorted(topic.partitions) for name, topic in topics.items()}
        groups = sorted(g.group_id for g in await admin.list_groups())
        described = await admin.describe_groups(groups)
        transactions = sorted(t.transactional_id for t in await admin.list_transactions())
        return {
            "topics": {
                name: [await _partition(bootstrap, admin, TopicPartition(name, p)) for p in ids]
                for name, ids in partitions.items()
                if not name.startswith("__") or name == GROUP_EVENTS
            },
            "internal": {n: ids for n, ids in partitions.items() if n.startswith("__")},
            "groups": {
                group: {
                    "offsets": [
                        [*partition, committed.offset, committed.metadata]
                        for partition, committed in sorted(
                            (await admin.group_offsets(group)).items()
                        )
                    ],
                    "members": sorted(
                        str(member.group_instance_id) for member in described[group].group.members
                    ),
                }
                for group in groups
            },
            "transactions": {
                name: one.producer_id
                for name, one in (await admin.describe_transactions(transactions)).items()
            },
            "nodes": {
                path: data.decode("latin-1")
                for tree in SETTINGS_IN_ZOOKEEPER
                for path, data in (await tree_below(zk, tree)).items()
                if not path.startswith(_TRANSIENT)
            },
        }


async def _partition(bootstrap: str, admin: Admin, partition: TopicPartition) -> dict[str, Any]:
    start = (await admin.list_offsets({partition: EARLIEST_TIME}))[partition].offset
    end = (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset
    return {
        "start": start,
        "end": end,
        "records": [_row(r) for r in await contents(bootstrap, partition, start)],
        "committed": [
            r.offset for r in await contents(bootstrap, partition, start, Isolation.READ_COMMITTED)
        ],
    }


def _row(record: Record) -> list[Any]:
    return [
        record.offset,
        record.timestamp_ms,
        _text(record.key),
        _text(record.value),
        [[name, _text(value)] for name, value in record.headers],
    ]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


async def tree_below(zk: ZkSession, root: str) -> dict[str, bytes]:
    """All persistent nodes of a tree with their data, parents first."""
    stat = await zk.exists(root)
    if stat is None or stat.ephemeral_owner:
        return {}
    data, _ = await zk.get(root)
    found = {root: data or b""}
    names, _ = await zk.children(root)
    for name in sorted(names):
        found |= await tree_below(zk, f"{root.rstrip('/')}/{name}")
    return found
