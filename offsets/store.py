"""Where a group keeps its committed offsets: with its coordinator, in ZooKeeper, or in both.

The same three choices as Kafka 0.8.2's `offsets.storage` and `dual.commit.enabled`; ZooKeeper's is
`offsets.zookeeper_store`. A store tries once: who calls it knows whether there is time to retry,
and `retriable` of the error says whether it can help.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import attrs

from offsets.requests import (
    commit_request,
    commit_results,
    fetch_offsets_request,
    fetched_offsets,
)
from protocol.errors import ErrorCode, KgroupError
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.migration_znodes import OffsetStorage

_log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CommitFailed(KgroupError):
    """Some partitions were not committed; those not in `errors` were."""

    def __init__(self, errors: Mapping[TopicPartition, ErrorCode], detail: str = "") -> None:
        named = ", ".join(f"{p}: {code.name}" for p, code in sorted(errors.items()))
        super().__init__(f"{named} ({detail})" if detail else named)
        self.errors = dict(errors)

    @property
    def retriable(self) -> bool:
        """Whether trying again can help at least one partition."""
        return any(code.retriable for code in self.errors.values())


class OffsetFetchFailed(KgroupError):
    """The offsets of some partitions could not be read; `found` has the others'."""

    def __init__(self, errors: Mapping[TopicPartition, str], found: Offsets) -> None:
        super().__init__(", ".join(f"{p}: {reason}" for p, reason in sorted(errors.items())))
        self.errors = dict(errors)
        self.found = dict(found)


class OffsetStore(Protocol):
    """A place for committed offsets."""

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; absent is proof that none is committed.

        Raises OffsetFetchFailed when anything is in doubt.
        """

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Commit these offsets, leaving out negative ones. Raises CommitFailed."""


@attrs.frozen
class CoordinatorStore:
    """Offsets kept by the group's coordinator, committed as by a consumer outside of generations
    (generation -1, no member id), which is what a member of a ZooKeeper group is to Kafka.

    `call` brings a request to the coordinator; its transport errors pass through unchanged.
    `forget` is told when the broker asked is not the coordinator, so that another is looked for.
    """

    call: Callable[[Any], Awaitable[Any]]
    forget: Callable[[], None] = lambda: None
    written: Callable[[int], None] = lambda number: None
    """Is told how many offsets have been committed."""

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Raises OffsetFetchFailed: any error code is a doubt, never "no offset"."""
        if not partitions:  # an empty list of topics is answered with nothing, null with all
            return {}
        response: OffsetFetchResponse = await self.call(fetch_offsets_request(group, partitions))
        refused = ErrorCode.of(response.error_code)
        answers = fetched_offsets(response)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        errors: dict[TopicPartition, str] = {}
        for partition in sorted(partitions):
            answer = answers.get(partition)
            code = answer.error if answer and refused is ErrorCode.NONE else refused
            if code is not ErrorCode.NONE:
                self._heed(code)
                errors[partition] = code.name
            elif answer is None:
                errors[partition] = "left out of the response"
            elif answer.offset >= 0:
                found[partition] = OffsetAndMetadata(
                    answer.offset, answer.metadata, answer.leader_epoch
                )
        if errors:
            raise OffsetFetchFailed(errors, found)
        return found

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Raises CommitFailed. Unchanged offsets are sent too: that keeps them from expiring."""
        offsets = committable(offsets)
        if not offsets:
            return
        answers = commit_results(await self.call(commit_request(group, offsets)))
        codes = {p: answers.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in offsets}
        errors = {p: code for p, code in codes.items() if code is not ErrorCode.NONE}
        self.written(len(codes) - len(errors))
        if errors:
            for code in set(errors.values()):
                self._heed(code)
            raise CommitFailed(errors)

    def _heed(self, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.forget()


@attrs.frozen
class DualStore:
    """Both stores: `dual.commit.enabled`, and what a migration makes of its members.

    Kafka is written first, ZooKeeper with what Kafka took. Read is the larger of the two, as in
    Kafka, whose members can't know better: a group rewound in one store alone is therefore not
    rewound. With a `leader` it is read alone, and what the other holds decides nothing.
    """

    kafka: OffsetStore
    zookeeper: OffsetStore
    leader: OffsetStorage | None = None

    async def fetch(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The leader's offset, or per partition the larger, with Kafka's metadata.

        Raises OffsetFetchFailed when a store that counts is in doubt.
        """
        # Asked whoever leads: its store leaves out writes of what it believes to be there.
        zookeeper, zookeeper_errors = await _fetched(self.zookeeper, group, partitions)
        if self.leader is OffsetStorage.ZOOKEEPER:
            return _sure(zookeeper, zookeeper_errors)
        kafka, kafka_errors = await _fetched(self.kafka, group, partitions)
        unclear = kafka_errors.keys() | zookeeper_errors.keys()
        for partition in differing(kafka, zookeeper) - unclear:
            _log.warning(
                "group %s: %s is DIVERGED: %s in Kafka, %s in ZooKeeper",
                *(group, partition),
                *(at[partition].offset if partition in at else None for at in (kafka, zookeeper)),
            )
        if self.leader is OffsetStorage.KAFKA:
            return _sure(kafka, kafka_errors)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in kafka.keys() | zookeeper.keys():
            ours, theirs = kafka.get(partition), zookeeper.get(partition)
            if ours and theirs and theirs.offset > ours.offset:
                found[partition] = OffsetAndMetadata(theirs.offset, ours.metadata)
            elif either := ours or theirs:
                found[partition] = either
        return _sure(found, {**zookeeper_errors, **kafka_errors})

    async def commit(self, group: str, offsets: Offsets) -> None:
        """Raises CommitFailed with the errors of both."""
        await self._commit_one_by_one(
            group, dict.fromkeys(offsets, (self.kafka, self.zookeeper)), offsets
        )

    async def reset(self, group: str, offsets: Offsets) -> None:
        """Commit what may lie before, or far behind, what is there: the lower store first.

        The larger of the two is then the old offset until it is the new one, whichever way it
        goes and wherever it is cut off. Raises CommitFailed, OffsetFetchFailed.
        """
        kafka = await self.kafka.fetch(group, offsets.keys())
        zookeeper = await self.zookeeper.fetch(group, offsets.keys())
        nothing = OffsetAndMetadata(-1)
        order = {
            p: (self.zookeeper, self.kafka)
            if zookeeper.get(p, nothing).offset < kafka.get(p, nothing).offset
            else (self.kafka, self.zookeeper)
            for p in offsets
        }
        await self._commit_one_by_one(group, order, offsets)

    async def _commit_one_by_one(
        self,
        group: str,
        order: Mapping[TopicPartition, tuple[OffsetStore, OffsetStore]],
        offsets: Offsets,
    ) -> None:
        """To the first store of each partition, and to the second what the first has taken."""
        errors: dict[TopicPartition, ErrorCode] = {}
        for turn in (0, 1):
            refused = set(errors)
            for store in (self.kafka, self.zookeeper):
                due = {
                    p: offset
                    for p, offset in offsets.items()
                    if order[p][turn] is store and p not in refused
                }
                try:
                    await store.commit(group, due)
                except CommitFailed as failure:
                    errors |= failure.errors
        if errors:
            raise CommitFailed(errors)


def differing(one: Offsets, other: Offsets) -> set[TopicPartition]:
    """The partitions for which two stores do not hold the same offset; metadata don't count."""
    return {
        p
        for p in one.keys() | other.keys()
        if p not in one or p not in other or one[p].offset != other[p].offset
    }


def committable(offsets: Offsets) -> Offsets:
    """Without negative offsets: "not known yet" is nobody's position."""
    return {p: offset for p, offset in offsets.items() if offset.offset >= 0}


def _sure(
    found: Offsets, errors: Mapping[TopicPartition, str]
) -> dict[TopicPartition, OffsetAndMetadata]:
    sure = {p: offset for p, offset in found.items() if p not in errors}
    if errors:
        raise OffsetFetchFailed(errors, sure)
    return sure


async def _fetched(
    store: OffsetStore, group: str, partitions: Collection[TopicPartition]
) -> tuple[Offsets, Mapping[TopicPartition, str]]:
    try:
        return await store.fetch(group, partitions), {}
    except OffsetFetchFailed as failure:
        return failure.found, failure.errors
