"""The stores of a group's committed offsets: its coordinator, ZooKeeper, or both.

The choices are those of Kafka 0.8.2's `offsets.storage` and `dual.commit.enabled`. ZooKeeper's
store is in `offsets.zookeeper_store`. A store tries once: its caller knows whether there is time to
retry, and the error's `retriable` says whether that can help.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from offsets.requests import (
    NO_MEMBER,
    Committer,
    commit_request,
    commit_results,
    fetch_offsets_request,
    fetch_results,
)
from offsets.store_errors import CommitFailed, OffsetFetchFailed, missing_rights
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.migration_znodes import OffsetStorage

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class OffsetStore(Protocol):
    """A place for committed offsets."""

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets. A partition that is absent certainly has none.

        Raises OffsetFetchFailed if anything is in doubt.
        """

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit these offsets, except negative ones. Raises CommitFailed."""


@frozen
class CoordinatorStore:
    """Offsets kept by the group's coordinator.

    `committer` names who commits. By default it is a consumer outside of generations: that is what
    a member of a ZooKeeper group is to Kafka. `on_refused` gets the committer of a commit, and each
    error of it; it returns what that means to the committer, or "".

    `call` sends a request to the coordinator; its transport errors pass through unchanged.
    `forget_coordinator` is called when that broker is not the coordinator, so that another is
    looked for. `on_written` gets the number of offsets that were committed.
    """

    call: Callable[[Any], Awaitable[Any]]
    forget_coordinator: Callable[[], None] = lambda: None
    on_written: Callable[[int], None] = lambda number: None
    committer: Callable[[], Committer] = lambda: NO_MEMBER
    on_refused: Callable[[Committer, ErrorCode], str] = lambda committer, error: ""

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets. Raises OffsetFetchFailed: no error code means "no offset".

        An offset that a transaction is about to commit is an error, which passes: who begins below
        it would consume again what the transaction has consumed (KIP-447).
        """
        # The response to an empty list of topics is empty; null would ask for all of them.
        if not partitions:
            return {}

        request = fetch_offsets_request(group, partitions, require_stable=True)
        response: OffsetFetchResponse = await self.call(request)
        group_code = ErrorCode.of(response.error_code)
        results = fetch_results(response)

        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        errors: dict[TopicPartition, str] = {}
        codes: set[ErrorCode] = set()
        for partition in sorted(partitions):
            # An error of the whole response counts for each partition.
            result = results.get(partition)
            code = result.error if result and group_code is ErrorCode.NONE else group_code
            if code is not ErrorCode.NONE:
                self._check_coordinator(code)
                codes.add(code)
                errors[partition] = code.name
            elif result is None:
                errors[partition] = "left out of the response"
            elif result.offset >= 0:
                # A negative offset without an error says that nothing is committed.
                offsets[partition] = OffsetAndMetadata(
                    result.offset, result.metadata, result.leader_epoch
                )

        if errors:
            rights = missing_rights(ApiKey.OFFSET_FETCH, codes)
            raise OffsetFetchFailed(errors, offsets, rights)
        return offsets

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit, also what has not changed: that keeps it from expiring. Raises CommitFailed."""
        offsets = committable(offsets)
        if not offsets:
            return

        committer = self.committer()
        results = commit_results(await self.call(commit_request(group, offsets, committer)))

        # A partition that the response lacks is not committed.
        codes = {
            partition: results.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            for partition in offsets
        }
        errors = {
            partition: code for partition, code in codes.items() if code is not ErrorCode.NONE
        }
        self.on_written(len(codes) - len(errors))

        if errors:
            meanings: list[str] = []
            for code in sorted(set(errors.values())):
                self._check_coordinator(code)
                meanings.append(self.on_refused(committer, code))
            raise CommitFailed(errors, "; ".join(filter(None, meanings)))

    def _check_coordinator(self, code: ErrorCode) -> None:
        """Forget the coordinator if `code` says that it is none."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.forget_coordinator()


@frozen
class DualStore:
    """Both stores, for `dual.commit.enabled` and for members of a group in migration.

    A commit goes to Kafka first, and what Kafka took goes to ZooKeeper. A fetch returns the larger
    offset, as in Kafka, whose members cannot know better: a group that is rewound in one store
    alone is therefore not rewound. If there is a `leader`, its offset counts alone.
    """

    kafka: OffsetStore
    zookeeper: OffsetStore
    leader: OffsetStorage | None = None

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the leader's offsets, or of each partition the larger, with Kafka's metadata.

        Raises OffsetFetchFailed if a store that counts is in doubt.
        """
        # ZooKeeper is read even if Kafka leads: its store skips writes of offsets that it has read.
        zookeeper, zookeeper_errors = await _try_to_fetch(self.zookeeper, group, partitions)
        if self.leader is OffsetStorage.ZOOKEEPER:
            return _raise_if_failed(zookeeper, zookeeper_errors)

        kafka, kafka_errors = await _try_to_fetch(self.kafka, group, partitions)

        # A difference may be a commit in flight: it is named in the log, and no error.
        failed = kafka_errors.keys() | zookeeper_errors.keys()
        for partition in find_differing(kafka, zookeeper) - failed:
            in_kafka = kafka[partition].offset if partition in kafka else None
            in_zookeeper = zookeeper[partition].offset if partition in zookeeper else None
            logger.warning(
                "group %s: %s is DIVERGED: %s in Kafka, %s in ZooKeeper",
                *(group, partition, in_kafka, in_zookeeper),
            )
        if self.leader is OffsetStorage.KAFKA:
            return _raise_if_failed(kafka, kafka_errors)

        # Without a leader the larger offset counts.
        larger: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in kafka.keys() | zookeeper.keys():
            ours = kafka.get(partition)
            theirs = zookeeper.get(partition)
            # ZooKeeper keeps no metadata, so those of Kafka go with either offset.
            if ours and theirs and theirs.offset > ours.offset:
                larger[partition] = OffsetAndMetadata(theirs.offset, ours.metadata)
            elif either := ours or theirs:
                larger[partition] = either
        return _raise_if_failed(larger, {**zookeeper_errors, **kafka_errors})

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit to Kafka, then to ZooKeeper. Raises CommitFailed with the errors of both."""
        await self._commit_one_by_one(
            group, dict.fromkeys(offsets, (self.kafka, self.zookeeper)), offsets
        )

    async def reset(self, group: str, offsets: Offsets) -> None:
        """Commit offsets that may lie far before or behind the present ones: lower store first.

        The larger of the two is then the old offset until it is the new one, in both directions,
        even if this is interrupted. Raises CommitFailed, OffsetFetchFailed.
        """
        kafka = await self.kafka.fetch(group, offsets.keys())
        zookeeper = await self.zookeeper.fetch(group, offsets.keys())

        # Where both are equal Kafka goes first, as in any commit.
        nothing = OffsetAndMetadata(-1)
        order: dict[TopicPartition, tuple[OffsetStore, OffsetStore]] = {}
        for partition in offsets:
            if zookeeper.get(partition, nothing).offset < kafka.get(partition, nothing).offset:
                order[partition] = (self.zookeeper, self.kafka)
            else:
                order[partition] = (self.kafka, self.zookeeper)
        await self._commit_one_by_one(group, order, offsets)

    async def _commit_one_by_one(
        self,
        group: str,
        order: Mapping[TopicPartition, tuple[OffsetStore, OffsetStore]],
        offsets: Offsets,
    ) -> None:
        """Commit to the first store of each partition, and to the second what the first took."""
        errors: dict[TopicPartition, ErrorCode] = {}

        # The second store of a partition is written only if the first one was.
        for turn in (0, 1):
            refused = set(errors)
            for store in (self.kafka, self.zookeeper):
                due = {
                    partition: offset
                    for partition, offset in offsets.items()
                    if order[partition][turn] is store and partition not in refused
                }
                try:
                    await store.commit(group, due)
                except CommitFailed as failure:
                    errors |= failure.errors

        if errors:
            raise CommitFailed(errors)


def find_differing(left: Offsets, right: Offsets) -> set[TopicPartition]:
    """Return the partitions whose offsets differ in two stores; metadata do not count."""
    return {
        partition
        for partition in left.keys() | right.keys()
        if partition not in left
        or partition not in right
        or left[partition].offset != right[partition].offset
    }


def committable(offsets: Offsets) -> Offsets:
    """Return `offsets` without negative ones, which stand for positions that are not known yet."""
    return {partition: offset for partition, offset in offsets.items() if offset.offset >= 0}


def _raise_if_failed(
    offsets: Offsets, errors: Mapping[TopicPartition, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return `offsets`. Raises OffsetFetchFailed if there are errors."""
    certain = {
        partition: offset for partition, offset in offsets.items() if partition not in errors
    }
    if errors:
        raise OffsetFetchFailed(errors, certain)
    return certain


async def _try_to_fetch(
    store: OffsetStore, group: str, partitions: Collection[TopicPartition]
) -> tuple[Offsets, Mapping[TopicPartition, str]]:
    """Return offsets, and the reason for each partition whose offset could not be read."""
    try:
        return await store.fetch(group, partitions), {}
    except OffsetFetchFailed as failure:
        return failure.offsets, failure.errors
