"""Commits that fail: which are repeated, for which partitions, and how often."""

import asyncio

import pytest

from clients.errors import NoBrokersAvailable
from offsets.store_errors import CommitFailed
from protocol.errors import ErrorCode
from protocol.topic_partition import OffsetAndMetadata
from tests.clients.high_level.deliveries import P0, P1, Scene, play, retriable


@pytest.mark.parametrize("failures", [0, 1, 9])
def test_what_is_not_owned_is_an_error_however_often_the_rest_is_tried(failures: int) -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0)] * failures
        work.delivery.start({P0: ("0", 5)})
        wanted = {P0: OffsetAndMetadata(6), P1: OffsetAndMetadata(7)}
        with pytest.raises(CommitFailed) as failure:
            await work.delivery.commit_offsets(wanted)
        assert failure.value.errors[P1] is ErrorCode.ILLEGAL_GENERATION
        # The rest is tried four times, and no more.
        assert (P0 in failure.value.errors) == (failures == 9)
        assert work.store.commits == [{P0: 6}] * min(1 + failures, 4)

    play(scene)


def test_a_commit_is_tried_again_for_the_partitions_that_failed() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0), None]
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        await work.delivery.commit_offsets()
        assert work.store.commits == [{P0: 5, P1: 6}, {P0: 5}]
        assert asyncio.get_running_loop().time() == 1.0

    play(scene)


def test_a_commit_that_keeps_failing_is_given_up_after_its_retries() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0) for _ in range(9)]
        work.delivery.start({P0: ("0", 5)})
        with pytest.raises(CommitFailed, match="NOT_COORDINATOR"):
            await work.delivery.commit_offsets()
        assert len(work.store.commits) == 4

    play(scene)


def test_a_commit_that_cannot_help_is_not_tried_again() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [CommitFailed({P0: ErrorCode.OFFSET_METADATA_TOO_LARGE})]
        work.delivery.start({P0: ("0", 0)})
        with pytest.raises(CommitFailed):
            await work.delivery.commit_offsets({P0: OffsetAndMetadata(1, "x" * 9999)})
        assert len(work.store.commits) == 1

    play(scene)


def test_a_partition_that_left_between_attempts_is_not_committed_again() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [retriable(P0, P1)]
        work.delivery.start({P0: ("0", 5), P1: ("1", 6)})
        commit = asyncio.ensure_future(work.delivery.commit_offsets())
        await asyncio.sleep(0.5)
        work.delivery.stop({P0})
        await work.delivery.forget({P0})
        await commit
        assert work.store.commits[1:] == [{P1: 6}]

    play(scene)


def test_a_rebalance_goes_on_without_a_commit_that_fails() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.failures = [NoBrokersAvailable("none") for _ in range(9)]
        work.delivery.start({P0: ("0", 5)})
        work.delivery.stop({P0})
        await work.delivery.commit({P0})
        assert len(work.store.commits) == 2

    play(scene)


def test_a_rebalance_does_not_wait_for_a_commit_that_hangs() -> None:
    async def scene() -> None:
        work = Scene()
        work.store.latency_s = 3600.0
        work.delivery.start({P0: ("0", 5)})
        work.delivery.stop({P0})
        await work.delivery.commit({P0})
        await work.delivery.forget({P0})
        assert asyncio.get_running_loop().time() == 4.0

    play(scene)
