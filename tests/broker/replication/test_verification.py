"""Transactions open in a log by the verdict of their coordinator, and by no other's."""

from __future__ import annotations

import attrs
import pytest

from broker.replication import verification
from broker.replication.verification import Verdict, Verification
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import NOW_MS, Replicas
from tests.broker.transactions import in_transaction, marker, write_markers
from tests.stage.coordinator import coordinator_of_nothing

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@attrs.define(eq=False)
class Stage:
    """A leader of two partitions that verifies, and what its coordinators are asked."""

    replicas: Replicas = attrs.field(init=False)
    asked: list[Verdict] = attrs.field(factory=list)
    verification: Verification = attrs.field(factory=Verification)

    def __attrs_post_init__(self) -> None:
        self.replicas = Replicas().lead("t", 2)
        self.replicas.manager.verification = self.verification
        self.verification.ask = self.asked.append

    def need(
        self, *, epoch: int = 0, sequence: int = 0, name: str = "x", tp: TopicPartition = T0
    ) -> Verdict | None:
        """What the handler of a request does first."""
        header = read_header(in_transaction(b"v", epoch=epoch, sequence=sequence))
        return self.verification.verdict_on(self.replicas.manager.partition(tp), header, name)

    def write(self, *, epoch: int = 0, sequence: int = 0, tp: TopicPartition = T0) -> ErrorCode:
        records = in_transaction(b"v", epoch=epoch, sequence=sequence)
        try:
            self.replicas.manager.append(
                tp, records, all_in_sync=True, zstd_allowed=True, now_ms=NOW_MS
            )
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.asked.pop(0).end(error)

    def end(self, tp: TopicPartition = T0) -> None:
        write_markers(self.replicas, coordinator_of_nothing(), marker(tp))


def test_a_batch_that_nobody_asked_about_is_refused() -> None:
    assert Stage().write() is ErrorCode.INVALID_TXN_STATE


def test_a_batch_waits_for_its_verdict() -> None:
    stage = Stage()
    stage.need()
    assert stage.write() is ErrorCode.NOT_ENOUGH_REPLICAS
    stage.answer()
    assert stage.write() is ErrorCode.NONE


def test_an_open_transaction_needs_no_verdict() -> None:
    stage = Stage()
    stage.need()
    stage.answer()
    stage.write()
    assert stage.need(sequence=1) is None
    assert stage.write(sequence=1) is ErrorCode.NONE


def test_a_late_batch_behind_the_marker_opens_nothing() -> None:
    stage = Stage()
    stage.need()
    stage.answer()
    stage.write()
    stage.end()
    assert stage.write(sequence=1) is ErrorCode.INVALID_TXN_STATE
    stage.need(sequence=1)
    stage.answer(ErrorCode.INVALID_TXN_STATE)
    assert stage.write(sequence=1) is ErrorCode.INVALID_TXN_STATE
    assert stage.replicas.manager.partition(T0).last_stable_offset == 2


def test_a_verdict_from_before_a_marker_says_nothing_about_what_comes_after() -> None:
    stage = Stage()
    late = stage.need()
    assert late is not None
    stage.end()
    late.end(ErrorCode.NONE)
    assert stage.write() is ErrorCode.INVALID_TXN_STATE
    # Nor does it where the next transaction is being asked about.
    assert stage.need() is not late
    assert stage.write() is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_verdict_is_for_one_partition_and_the_marker_of_another_ends_it_not() -> None:
    stage = Stage()
    stage.need()
    stage.answer()
    stage.need(tp=T1)
    stage.end(T1)
    assert stage.write() is ErrorCode.NONE
    assert stage.write(tp=T1) is ErrorCode.INVALID_TXN_STATE


def test_a_verdict_is_for_one_epoch() -> None:
    stage = Stage()
    stage.need()
    stage.answer()
    assert stage.write(epoch=1) is ErrorCode.INVALID_TXN_STATE
    stage.need(epoch=1)
    stage.answer()
    assert stage.write(epoch=1) is ErrorCode.NONE


def test_a_verdict_is_for_one_time_in_office() -> None:
    stage = Stage()
    stage.need()
    stage.answer()
    stage.replicas.lead("t", 2, epoch=5)
    assert stage.write() is ErrorCode.NOT_ENOUGH_REPLICAS
    stage.need()
    stage.answer()
    assert stage.write() is ErrorCode.NONE


def test_requests_of_one_producer_share_a_question_and_another_id_asks_its_own() -> None:
    stage = Stage()
    verdict = stage.need()
    assert stage.need(sequence=1) is verdict
    assert stage.need(name="y") is not verdict
    assert [asked.transactional_id for asked in stage.asked] == ["x", "y"]


def test_a_refusal_is_asked_about_again() -> None:
    stage = Stage()
    stage.need()
    stage.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert stage.write() is ErrorCode.NOT_ENOUGH_REPLICAS
    stage.need()
    stage.answer()
    assert stage.write() is ErrorCode.NONE


def test_a_second_batch_does_not_come_before_a_first_one_that_was_not_verified() -> None:
    """KAFKA-14884: a partition that knows nothing of a producer takes any number."""
    stage = Stage()
    stage.need(sequence=3)
    stage.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    stage.need(sequence=4)
    stage.answer()
    assert stage.write(sequence=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stage.write(sequence=3) is ErrorCode.NONE
    assert stage.write(sequence=4) is ErrorCode.NONE


def test_the_oldest_verdicts_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_VERDICTS", 1)
    stage = Stage()
    stage.need()
    stage.need(tp=T1)
    stage.answer()
    stage.answer()
    assert stage.write() is ErrorCode.INVALID_TXN_STATE
    assert stage.write(tp=T1) is ErrorCode.NONE


@pytest.mark.fault("strangers-28")
def test_a_refused_verdict_keeps_no_id_that_a_client_chose() -> None:
    stage = Stage()
    refused, allowed = stage.need(name="x" * 30_000), stage.need(name="y", tp=T1)
    assert refused is not None
    assert allowed is not None
    stage.answer(ErrorCode.INVALID_TXN_STATE)
    stage.answer()
    assert (refused.transactional_id, allowed.transactional_id) == ("", "y")
    assert stage.need(name="x" * 30_000) is not refused
