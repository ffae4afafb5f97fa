"""Ask the brokers where the logs begin and end; a source does so on Spark's driver."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from clients.errors import BrokerError, DeadlineExceeded
from protocol.errors import ErrorCode
from protocol.settings import SettingError
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.options import SourceOptions
from spark_connector.positions import EARLIEST, LATEST, WITHOUT_COMMIT, WORDS, Position
from spark_connector.stream_offset import Offsets

if TYPE_CHECKING:
    # Executors load this module too, and never need an admin client.
    from clients.admin.descriptions import GroupDescription, ListedOffset, TopicDescription

logger = logging.getLogger(__name__)

T = TypeVar("T")

DISCOVERY_S = 10.0
"""Time for which a new partition may go unseen; each look delays a trigger by a round trip."""

GONE_GRACE_S = 10.0
"""Time for which brokers may not know a topic, until that counts as its deletion."""

TRUNCATION_GRACE_S = 10.0
"""Time for which a log may end before what was read, or planned, until that counts as data loss."""

CALL_TIMEOUT_MS = 10_000
"""Bound on the time for which one call of the brokers delays a trigger."""

WARNING_INTERVAL_S = 10.0
"""Time from a warning that the brokers are away to the next."""


class Brokers(Protocol):
    """The part of the blocking admin client that the source uses. Its calls raise KgroupError."""

    def list_topics(self) -> list[str]: ...

    def describe_topics(self, names: Iterable[str]) -> "Mapping[str, TopicDescription]": ...

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> "Mapping[TopicPartition, ListedOffset]": ...

    def describe_groups(self, group_ids: Iterable[str]) -> "Mapping[str, GroupDescription]": ...

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
    # Imported here: executors never need all those clients.
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

    # What is known of the topics.
    _partitions: list[TopicPartition] = attrs.field(init=False, factory=list)
    _looked_at_s: float = attrs.field(init=False, default=float("-inf"))
    _missing_since_s: dict[str, float] = attrs.field(init=False, factory=dict)
    """Since when the brokers have not known a topic."""
    _topic_ids: dict[str, bytes] = attrs.field(init=False, factory=dict)
    """The ids of the topics, from brokers that tell them."""
    _old_ids: set[bytes] = attrs.field(init=False, factory=set)
    """Ids that topics had before."""
    _made_again: set[str] = attrs.field(init=False, factory=set)
    """Topics that got another id, and are not taken note of yet."""

    _warned_at_s: float = attrs.field(init=False, default=float("-inf"))

    def patiently(self, ask: Callable[[], T], for_s: float) -> T:
        """Return what `ask` returns; repeat it for a while if the brokers are away.

        Raises DeadlineExceeded after that time, and other errors at once. There is no pause: a call
        that ends so has taken its whole time, in which the client repeated its requests.
        """
        deadline_s = self.now_s() + for_s
        while True:
            try:
                return ask()
            except DeadlineExceeded as error:
                if self.now_s() >= deadline_s:
                    raise
                self.warn(f"the brokers did not answer, which is tried again: {error}")

    def warn(self, text: str) -> None:
        """Warn, unless there was a warning in the last `WARNING_INTERVAL_S`."""
        if self.now_s() - self._warned_at_s >= WARNING_INTERVAL_S:
            self._warned_at_s = self.now_s()
            logger.warning("%s", text)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions; new ones are looked for every `DISCOVERY_S`.

        While the brokers cannot say, return those of the last look. Raises BrokerError and
        ClientError; SettingError if an option names what does not exist at the first look.
        """
        if self.now_s() - self._looked_at_s < DISCOVERY_S:
            return self._partitions

        is_first = not self._partitions
        try:
            topics = self._describe(strict=is_first)
        except BrokerError as error:
            # During a disturbance the known partitions will do.
            if is_first or not error.retriable:
                raise
            return self._partitions

        self._note_missing(topics)
        self._note_ids(topics)
        self._partitions = sorted([*self._read_of(topics), *self._kept()])
        self._check_assigned(is_first)

        # A look that left something open is repeated at the next trigger.
        if not self._missing_since_s:
            self._looked_at_s = self.now_s()
        return self._partitions

    def replaced(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those partitions whose topic has got another id since `forget_replaced`."""
        return {partition for partition in partitions if partition.topic in self._made_again}

    def forget_replaced(self) -> None:
        """Forget which topics have got another id: the query begins them again."""
        self._made_again = set()

    def made_again(self, shorter: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of some logs, shorter than what was read, whose topic was created again.

        The others were truncated. The id of a topic tells; where brokers do not, the leader epoch
        does in one way: a log that lost its end has had another leader since. Raises as
        `partitions`.
        """
        described = self._describe_of({partition.topic for partition in shorter})
        self._note_ids(described)
        return self.replaced(shorter) | {
            partition
            for partition in shorter
            if (topic := described.get(partition.topic)) is not None
            and (view := topic.partitions.get(partition.partition)) is not None
            and view.leader_epoch == 0
        }

    def find_fewer(self, gone: Collection[TopicPartition]) -> set[str]:
        """Return the topics that are there without their partitions that are gone.

        They were created again: partitions never become fewer. They are looked at once more, as a
        broker may be behind. Raises as `partitions`.
        """
        described = self._describe_of({partition.topic for partition in gone}) if gone else {}
        return {
            partition.topic
            for partition in gone
            if (topic := described.get(partition.topic)) is not None
            and topic.partitions
            and partition.partition not in topic.partitions
        }

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs begin."""
        return self.at(dict.fromkeys(partitions, EARLIEST_TIME))

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs end for a consumer: before records that it may not see yet."""
        return self.at(dict.fromkeys(partitions, LATEST_TIME))

    def latest_where_known(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where the logs end, but for partitions whose leader is away: warn of these."""
        listed = self._list(dict.fromkeys(partitions, LATEST_TIME))
        away = {p: offset.error for p, offset in listed.items() if offset.error}
        for partition, error in away.items():
            if not error.retriable:
                raise BrokerError(error, str(partition))
        if away:
            partition, error = next(iter(away.items()))
            more = f" and {len(away) - 1} more partitions" if len(away) > 1 else ""
            self.warn(f"{partition}{more} cannot be read for now ({error.name}); the others are")
        return {p: offset.offset for p, offset in listed.items() if p not in away}

    def at(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Return `positions` with real offsets for earliest and latest: one request a leader."""
        # Only the special positions are negative: they are asked for.
        times = {partition: offset for partition, offset in positions.items() if offset < 0}
        offsets = dict(positions)
        for partition, listed in self._list(times).items():
            _raise_for_error(partition, listed)
            offsets[partition] = listed.offset
        return offsets

    def starting(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where a new query begins by its options; `at` resolves it. Raises SettingError."""
        position = self.options.start
        if position.word in WITHOUT_COMMIT:
            return self._at_group(position, partitions)

        # As in Spark's source, what has no record since the time is an error, or begins at the end.
        strict = self.options.starting_offsets_by_timestamp_strategy == "error"
        return self._at_position(position, partitions, strict=strict)

    def ending(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where a batch ends by its options; `at` resolves it. Raises SettingError."""
        return self._at_position(self.options.end, partitions, strict=False)

    def within_range(self, group: str, committed: Offsets) -> dict[TopicPartition, int]:
        """Return a group's offsets, but as `onGroupOutOfRange` has it where the log lacks them.

        Raises SettingError if that is to fail.
        """
        return {**committed, **self._out_of_range(group, committed)}

    # -- topics

    def _describe(self, *, strict: bool) -> "Mapping[str, TopicDescription]":
        """Describe the topics. `strict`: raise SettingError if one that is named does not exist."""
        subscription = self.options.subscription
        by_name = not subscription.regex
        names = subscription.named_topics()
        if not by_name:
            names = tuple(subscription.matching(self.brokers.list_topics()))

        try:
            return self.brokers.describe_topics(names)
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # A topic that only matches the pattern may be gone since the list was made.
            if strict and by_name:
                text = f"names {error.detail}, which does not exist"
                raise SettingError(subscription.option, text) from error

        # One topic's error hides the others: ask for each.
        return self._describe_of(names)

    def _describe_of(self, names: Iterable[str]) -> "Mapping[str, TopicDescription]":
        topics: dict[str, TopicDescription] = {}
        for name in names:
            try:
                topics |= self.brokers.describe_topics([name])
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return topics

    def _note_missing(self, topics: Collection[str]) -> None:
        """Note which topics the brokers do not know: a broker that starts may not know them yet."""
        now_s = self.now_s()
        missing = {partition.topic for partition in self._partitions} - set(topics)
        since = {name: self._missing_since_s.get(name, now_s) for name in missing}
        self._missing_since_s = {
            name: since_s for name, since_s in since.items() if now_s - since_s < GONE_GRACE_S
        }

    def _note_ids(self, topics: "Mapping[str, TopicDescription]") -> None:
        for name, topic in topics.items():
            # A broker that is behind may still tell of the topic before.
            if topic.topic_id is None or topic.topic_id in self._old_ids:
                continue
            known = self._topic_ids.get(name, topic.topic_id)
            if known != topic.topic_id:
                self._old_ids.add(known)
                self._made_again.add(name)
            self._topic_ids[name] = topic.topic_id

    def _kept(self) -> list[TopicPartition]:
        return [p for p in self._partitions if p.topic in self._missing_since_s]

    def _read_of(self, topics: "Mapping[str, TopicDescription]") -> list[TopicPartition]:
        """Return those partitions of the topics that the query reads."""
        assigned = self.options.subscription.partitions
        return [
            partition
            for name, topic in topics.items()
            for partition in (TopicPartition(name, number) for number in topic.partitions)
            if not assigned or partition in assigned
        ]

    def _check_assigned(self, is_first: bool) -> None:
        missing = self.options.subscription.partitions - set(self._partitions)
        if is_first and missing:
            raise SettingError("assign", f"names {min(missing)}, which does not exist")

    # -- offsets

    def _list(self, times: Offsets) -> "Mapping[TopicPartition, ListedOffset]":
        if not times:
            return {}
        return self.brokers.list_offsets(times, isolation=self.options.client.isolation)

    def _at_position(
        self, position: Position, partitions: Collection[TopicPartition], *, strict: bool
    ) -> dict[TopicPartition, int]:
        given = {**position.offsets, **position.times}
        if unknown := sorted(given.keys() - set(partitions)):
            raise SettingError(position.option, f"names {unknown[0]}, which does not exist")
        if position.names_partitions:
            # What was forgotten would be read whole, or not at all (fault broker-11).
            _check_all_named(position.option, given, partitions)

        # A word or a single time goes for all partitions.
        if position.word:
            return dict.fromkeys(partitions, WORDS[position.word])
        times = position.times
        if position.time_ms is not None:
            times = dict.fromkeys(partitions, position.time_ms)

        return {**position.offsets, **self._at_times(position.option, times, strict=strict)}

    def _at_times(self, option: str, times: Offsets, *, strict: bool) -> dict[TopicPartition, int]:
        """Return the first offset since each time; where there is none, the latest, or raise."""
        offsets = {}
        for partition, listed in self._list(times).items():
            _raise_for_error(partition, listed)
            # The listed offset is then -1, the latest as a position has it.
            if listed.offset < 0 and strict:
                raise SettingError(
                    option,
                    f"{partition} has no record since {times[partition]}; to begin at its end, set "
                    "startingOffsetsByTimestampStrategy to latest",
                )
            offsets[partition] = listed.offset if listed.offset >= 0 else LATEST_TIME
        return offsets

    def _at_group(
        self, position: Position, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return where the group is, even if another kind of consumer left it there."""
        group = self.options.commit_group_id
        assert group is not None
        committed = self.brokers.group_offsets(group, partitions)
        otherwise = WITHOUT_COMMIT[position.word]
        if not committed:
            where = EARLIEST if otherwise == EARLIEST_TIME else LATEST
            logger.warning("group %s has no offsets: the query begins at the %s", group, where)

        offsets = {partition: held.offset for partition, held in committed.items()}
        return {**dict.fromkeys(partitions, otherwise), **self.within_range(group, offsets)}

    def _out_of_range(self, group: str, committed: Offsets) -> dict[TopicPartition, int]:
        """Return where partitions begin whose log does not have the group's offset.

        Raises SettingError, unless `onGroupOutOfRange` says where.
        """
        first = self.earliest(committed)
        end = self.latest(committed)
        outside = [p for p in committed if not first[p] <= committed[p] <= end[p]]

        choice = self.options.on_group_out_of_range
        begins: dict[TopicPartition, int] = {}
        for partition in sorted(outside):
            text = (
                f"group {group} is at offset {committed[partition]} of {partition}, whose log "
                f"begins at {first[partition]} and ends at {end[partition]}"
            )
            if choice not in WORDS:
                raise SettingError(
                    "startingOffsets", f"{text}; set onGroupOutOfRange to earliest or latest"
                )
            logger.warning("%s; the query begins at the %s there", text, choice)
            begins[partition] = WORDS[choice]
        return begins


def _check_all_named(
    option: str, given: Collection[TopicPartition], partitions: Collection[TopicPartition]
) -> None:
    """Raise SettingError, with the words of Spark's source, if JSON leaves partitions out."""
    missing = sorted(set(partitions).difference(given))
    if not missing:
        return

    if option.endswith("ByTimestamp"):
        end = "starting" if option.startswith("starting") else "ending"
        why = (
            f"Partitions specified for Kafka timestamp based {end} offsets don't match what are "
            "assigned. Maybe topic partitions are created or deleted while the query is running, "
            "or you didn't specify all the partitions"
        )
    else:
        earliest = ", -2 for earliest" if option.startswith("starting") else ""
        why = (
            f"If {option} contains specific offsets, you must specify all TopicPartitions. "
            f"Use -1 for latest{earliest}, if you don't care"
        )
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    raise SettingError(option, f"{why}. Not specified: {missing[0]}{more}")


def _raise_for_error(partition: TopicPartition, listed: "ListedOffset") -> None:
    """Raise the error of a partition; one that may pass has lasted for the whole call."""
    if listed.error.retriable:
        raise DeadlineExceeded(f"{partition}: {listed.detail or listed.error.meaning}")
    if listed.error:
        raise BrokerError(listed.error, str(partition))
