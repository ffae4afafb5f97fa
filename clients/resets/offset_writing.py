"""Write a group's offsets to the stores that it uses, and read them back."""

from collections.abc import Collection, Mapping

from clients.admin.offset_store import AdminStore
from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import KgroupError, from_zookeeper
from clients.resets.offset_change import Place
from groups.zookeeper.deletion import delete_offsets
from offsets.store import DualStore, Offsets, OffsetStore
from offsets.store_errors import OffsetFetchFailed
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition


async def write_offsets(
    sessions: Sessions, group_id: str, by_store: Mapping[str, Offsets]
) -> tuple[list[Failure], bool]:
    """Commit the offsets of each store. An offset that both get is written as by `kgroup migrate`:
    the store with the lower one first, so that the larger of the two is never a third offset.

    Returns failures, and whether a request without a response may still be performed.
    """
    stores = _stores(sessions)
    zookeeper = by_store.get("zookeeper", {})
    kafka = by_store.get("kafka", {})
    failures: list[Failure] = []
    may_follow = False

    both = {
        partition: offset
        for partition, offset in kafka.items()
        if partition in zookeeper and zookeeper[partition].offset == offset.offset
    }
    try:
        if both:
            await DualStore(stores["kafka"], stores["zookeeper"]).reset(group_id, both)
    except KgroupError as error:
        failures.append(Failure.of(group_id, error))
        may_follow |= error.retriable

    for store, offsets in by_store.items():
        rest = {partition: offset for partition, offset in offsets.items() if partition not in both}
        # A failure may be that of one partition, so the others may be written.
        try:
            if rest:
                await stores[store].commit(group_id, rest)
        except KgroupError as error:
            failures.append(Failure.of(f"{group_id} in {store}", error))
            may_follow |= error.retriable

    return failures, may_follow


async def delete_held_offsets(
    sessions: Sessions, group_id: str, by_store: Mapping[str, Collection[TopicPartition]]
) -> tuple[list[Failure], bool]:
    """Delete the offsets of each store (in Kafka: brokers from 2.4 on). Returns as above."""
    failures: list[Failure] = []
    may_follow = False
    for store, partitions in by_store.items():
        if not partitions:
            continue
        try:
            if store == "kafka":
                errors = await sessions.admin.delete_group_offsets(group_id, partitions)
                failures += [
                    Failure.of(f"{partition} in kafka", error)
                    for partition, error in errors.items()
                    if error
                ]
            else:
                assert sessions.zk is not None, "offsets of ZooKeeper were read there"
                with from_zookeeper():
                    await delete_offsets(sessions.zk, group_id, partitions)
        except KgroupError as error:
            # Without the group nothing is there.
            if not _is_unknown_group(error):
                failures.append(Failure.of(f"{group_id} in {store}", error))
                may_follow |= error.retriable
    return failures, may_follow


def _is_unknown_group(error: KgroupError) -> bool:
    return isinstance(error, ApiError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND


async def read_offsets(
    sessions: Sessions, group_id: str, by_store: Mapping[str, Collection[TopicPartition]]
) -> tuple[dict[Place, OffsetAndMetadata], list[Failure]]:
    """Return what the stores hold of these partitions, and failures to read them."""
    stores = _stores(sessions)
    held: dict[Place, OffsetAndMetadata] = {}
    failures: list[Failure] = []
    for store, partitions in by_store.items():
        if not partitions:
            continue
        if store not in stores:
            text = "its offsets are in ZooKeeper: give --zookeeper"
            failures.append(Failure(group_id, "NoZooKeeper", text))
            continue

        try:
            offsets: Offsets = await stores[store].fetch(group_id, list(partitions))
        except OffsetFetchFailed as error:
            failures.append(Failure.of(f"{group_id} in {store}", error))
            offsets = error.offsets
        held |= {(store, partition): offset for partition, offset in offsets.items()}
    return held, failures


def _stores(sessions: Sessions) -> dict[str, OffsetStore]:
    """Return the stores by their names in exports."""
    stores: dict[str, OffsetStore] = {"kafka": AdminStore(sessions.admin)}
    if sessions.zk is not None:
        stores["zookeeper"] = ZooKeeperStore(sessions.zk)
    return stores
