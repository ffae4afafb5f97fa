"""Fetch rounds look again at partitions in which nothing moves, as long as a fetch may matter."""

from __future__ import annotations

import attrs

from broker.handlers import fetch
from broker.replication.fetch_sessions import SessionReader
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchResponse
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas, batch, context, follower_at

LAG_MS = 10_000
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@attrs.define(eq=False)
class Reader:
    """A reader of partitions in a session: broker 1, or with -1 a consumer."""

    replicas: Replicas
    offsets: dict[TopicPartition, int]
    replica_id: int = 1
    max_bytes: int = 1000
    now_ms: int = NOW_MS
    session: SessionReader = attrs.field(factory=SessionReader)
    values: list[bytes | None] = attrs.field(factory=list)

    def round(self) -> None:
        """Fetch without waiting."""
        for tp, offset in self.offsets.items():
            asked = FetchRequestPartition(
                partition=tp.partition,
                fetch_offset=offset,
                log_start_offset=0,
                partition_max_bytes=1000,
            )
            self.session.want(tp, asked)
        template = FetchRequest(
            replica_id=self.replica_id,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=self.max_bytes,
            topics=(),
        )
        response: FetchResponse = fetch.handle(
            self.replicas.manager,
            self.replicas.cache,
            self.replicas.sessions,
            1 << 30,
            self.replicas.deferred,
            self.replicas.leader_quota,
            self.session.request(template),
            context(11)._replace(monotonic_ms=self.now_ms),
        )
        self.session.handle_response(response)
        for topic in response.responses:
            for part in topic.partitions:
                if part.records:
                    records = decode_records(part.records.read())
                    self.values += [record.value for record in records]
                    self.offsets[TopicPartition("t", part.partition_index)] += len(records)

    def forget(self, tp: TopicPartition) -> None:
        del self.offsets[tp]
        self.session.forget(tp)


def append(replicas: Replicas, tp: TopicPartition, value: bytes = b"v") -> None:
    replicas.manager.append(tp, batch(value), all_in_sync=False, zstd_allowed=True, now_ms=NOW_MS)


def test_what_did_not_fit_comes_without_being_asked_for_again() -> None:
    replicas = Replicas().lead("t", 3)
    reader = Reader(replicas, dict.fromkeys((T0, T1, T2), 0), replica_id=-1, max_bytes=1)
    reader.round()
    for number in range(3):
        for tp in (T0, T1, T2):
            append(replicas, tp, b"%d %d" % (tp.partition, number))
    for _ in range(9):
        reader.round()
    assert reader.values[:3] == [b"0 0", b"1 0", b"2 0"]  # none starves the others
    assert len(set(reader.values)) == 9


def test_who_asks_for_a_partition_no_more_falls_behind_though_its_session_goes_on() -> None:
    replicas = Replicas().lead("t", 2, isr=(0, 1), replicas=(0, 1))
    progress = replicas.manager.follower_progress
    reader = Reader(replicas, {T0: 0, T1: 0})
    for _ in range(3):
        reader.round()
    reader.forget(T0)
    reader.round()
    progress.shrink_isrs(NOW_MS)
    append(replicas, T0)
    for later_ms in range(0, 2 * LAG_MS, LAG_MS // 2):
        reader.now_ms = NOW_MS + later_ms
        reader.round()
        progress.shrink_isrs(reader.now_ms)
    assert {(change.topic_partition, change.state.isr) for change in replicas.proposals} == {
        (T0, (0,))
    }


def test_the_watermark_is_not_held_for_long_by_one_that_was_caught_up_and_is_gone() -> None:
    """The follower is not in sync and has stopped fetching. The empty fetches of another follower
    notice that its lag time is over."""
    replicas = Replicas().lead("t", isr=(0, 1), replicas=(0, 1, 2))
    reader = Reader(replicas, {T0: 0})
    reader.round()
    follower_at(replicas, T0, 0, replica=2)
    replicas.manager.follower_progress.give_up_isr(replicas.proposals[0])
    append(replicas, T0)
    for _ in range(3):
        reader.round()
    assert (reader.offsets, replicas.manager.high_watermark(T0)) == ({T0: 1}, 0)
    reader.now_ms = NOW_MS + LAG_MS + 1
    reader.round()
    assert replicas.manager.high_watermark(T0) == 1
