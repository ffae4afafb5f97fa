"""Ask the brokers where the logs begin and end; a source does so on Spark's driver."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import attrs

from clients.admin.descriptions import GroupDescription, ListedOffset, TopicDescription
from clients.errors import BrokerError
from protocol.settings import SettingError
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.options import EARLIEST, GROUP, LATEST, SourceOptions, specific_offsets
from spark_connector.stream_offset import Offsets

logger = logging.getLogger(__name__)

DISCOVERY_S = 10.0
"""Time for which a new partition may go unseen; each look delays a trigger by a round trip."""

_TIMES = {EARLIEST: EARLIEST_TIME, LATEST: LATEST_TIME}


class Brokers(Protocol):
    """The part of the blocking admin client that the source uses. Its calls raise KgroupError."""

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicDescription]: ...

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> Mapping[TopicPartition, ListedOffset]: ...

    def describe_groups(self, group_ids: Iterable[str]) -> Mapping[str, GroupDescription]: ...

    def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]: ...

    def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[Mapping[str, Any]], Brokers]


def connect_admin(settings: Mapping[str, Any]) -> Brokers:
    """Make an admin client with a thread of its own; it connects with its first call."""
    # Imported here because executors load this module too, and never need all those clients.
    from clients import blocking

    brokers: Brokers = blocking.Admin(settings)
    return brokers


class DataLoss(Exception):
    """Records were deleted before the query read them."""


def report_data_loss(loss: str, *, fail: bool) -> None:
    """Raise DataLoss, or warn if `failOnDataLoss` is false."""
    if fail:
        raise DataLoss(f"{loss}. To go on without them, set failOnDataLoss to false")
    logger.warning("%s; going on without them, as failOnDataLoss is false", loss)


@attrs.define(eq=False)
class SubscribedLogs:
    """The logs of the topics that the query subscribes to."""

    brokers: Brokers
    options: SourceOptions
    now_s: Callable[[], float]
    _partitions: list[TopicPartition] = attrs.field(init=False, factory=list)
    _looked_at_s: float = attrs.field(init=False, default=float("-inf"))

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions; new ones are looked for every `DISCOVERY_S`.

        While the brokers cannot say, return those of the last look. Raises BrokerError.
        """
        if self.now_s() - self._looked_at_s < DISCOVERY_S:
            return self._partitions

        try:
            topics = self.brokers.describe_topics(self.options.subscribe)
        except BrokerError as error:
            # During a disturbance the known partitions will do.
            if not (self._partitions and error.code.retriable):
                raise
        else:
            self._partitions = [
                TopicPartition(name, index)
                for name, topic in sorted(topics.items())
                for index in sorted(topic.partitions)
            ]
            # A look that has failed is repeated at the next trigger.
            self._looked_at_s = self.now_s()
        return self._partitions

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs begin."""
        return self.at(dict.fromkeys(partitions, EARLIEST_TIME))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs end for a consumer: before records that it may not see yet."""
        return self.at(dict.fromkeys(partitions, LATEST_TIME))

    def at(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Return `positions` with real offsets for earliest and latest: one request a leader."""
        # Only the special positions are negative: they are asked for.
        times = {partition: offset for partition, offset in positions.items() if offset < 0}
        offsets = dict(positions)
        if times:
            isolation = self.options.client.isolation
            for partition, listed in self.brokers.list_offsets(times, isolation=isolation).items():
                if listed.error:
                    raise BrokerError(listed.error, str(partition))
                offsets[partition] = listed.offset
        return offsets

    def starting(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where a new query begins by `startingOffsets`; `at` resolves it.

        Partitions that are not in the JSON, or have no committed offset, begin at their earliest.
        """
        text = self.options.starting_offsets

        # Where the group is, even if another kind of consumer left it there.
        if text == GROUP:
            group = self.options.commit_group_id
            assert group is not None
            committed = self.brokers.group_offsets(group, partitions)
            given: Offsets = {partition: offset.offset for partition, offset in committed.items()}
            if not given:
                logger.warning("group %s has no offsets: the query begins at the earliest", group)
        else:
            given = self._read_option("startingOffsets", text, partitions)

        return {partition: given.get(partition, EARLIEST_TIME) for partition in partitions}

    def ending(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where a batch ends by `endingOffsets`; `at` resolves it."""
        given = self._read_option("endingOffsets", self.options.ending_offsets, partitions)
        return {partition: given.get(partition, LATEST_TIME) for partition in partitions}

    def _read_option(self, name: str, text: str, partitions: Collection[TopicPartition]) -> Offsets:
        given = specific_offsets(name, text, self.options.subscribe)
        # A word goes for all partitions, a JSON text for those that it names.
        if given is None:
            return dict.fromkeys(partitions, _TIMES[text])
        if unknown := sorted(set(given) - set(partitions)):
            raise SettingError(name, f"names {unknown[0]}, which does not exist")
        return given
