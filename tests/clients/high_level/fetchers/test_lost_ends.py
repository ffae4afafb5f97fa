"""A log that lost its end to an unclean election, and has got others in its place (KIP-320)."""

import asyncio

import pytest

from clients.errors import LogTruncated
from clients.high_level.streams import PartitionFeed
from tests.clients.high_level.fetchers.scene import P0, WAIT_S, Scene, offsets, play

LOST = (
    "t-0: what was read from offset 20 to 30 is lost, and the log has others there: they are read"
)


def epochs(work: Scene, *entries: tuple[int, int]) -> None:
    """Have the logs the epochs that begin at these offsets."""
    work.broker.epochs.entries = list(entries)


def lose_end(work: Scene) -> None:
    """Elect a leader that has 20 of the 30 messages; it gets 20 others."""
    work.broker.logs[P0] = (0, 40)
    epochs(work, (0, 0), (1, 10), (2, 20))


def place_at(work: Scene, offset: int, epoch: int, *, leader_epoch: int) -> PartitionFeed:
    """Begin behind a message of this epoch, with a leader of that epoch."""
    feed = work.feed(P0, offset)
    feed.know_epoch(offset, epoch)
    feed.leader_epoch = leader_epoch
    return feed


async def read_until_election(feed: PartitionFeed, count: int) -> None:
    """Read so many messages, and have metadata name a leader of epoch 2."""
    assert await offsets(feed, count) == list(range(count))
    feed.leader_epoch = 2
    await asyncio.sleep(2 * WAIT_S)


@pytest.mark.fault("strangers-45")
def test_the_messages_that_took_the_offsets_of_lost_ones_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        epochs(work, (0, 0), (1, 10))
        feed = work.feed(P0, 0)
        async with work:
            await read_until_election(feed, 30)
            lose_end(work)
            assert await offsets(feed, 20) == list(range(20, 40))
            await asyncio.sleep(2 * WAIT_S)
            assert (feed.epochs.before(20), feed.epochs.before(40)) == (1, 2)

    play(scene)
    assert caplog.messages == [LOST]


@pytest.mark.fault("strangers-45")
def test_who_begins_at_a_lost_offset_begins_where_the_log_and_he_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        lose_end(work)
        feed = place_at(work, 30, 1, leader_epoch=2)
        async with work:
            assert await offsets(feed, 20) == list(range(20, 40))
            # What was committed is lost: the group goes back.
            assert feed.committed is None
            assert feed.position == 39

    play(scene)
    assert caplog.messages == [LOST]


@pytest.mark.fault("strangers-45")
def test_messages_in_hand_from_before_the_lost_ones_are_not_skipped() -> None:
    async def scene() -> None:
        work = Scene()
        epochs(work, (0, 0), (1, 10))
        feed = work.feed(P0, 0)
        async with work:
            await read_until_election(feed, 5)
            lose_end(work)
            await asyncio.sleep(2 * WAIT_S)
            # Of ten messages four are consumed; up to 20 the log is the same.
            assert (feed.position, feed.epochs.before(4)) == (4, 0)

    play(scene)


@pytest.mark.fault("strangers-45")
def test_without_a_reset_it_is_raised_that_messages_are_lost() -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "none"})
        lose_end(work)
        feed = place_at(work, 30, 1, leader_epoch=2)
        async with work:
            with pytest.raises(
                LogTruncated, match="from offset 20 to 30 is lost, and auto"
            ) as lost:
                await anext(feed.stream)
        error = lost.value
        assert (error.partition, error.offset, error.divergence_offset) == (P0, 30, 20)
        assert (feed.position, work.given_back) == (30, [feed])

    play(scene)


async def read_on(work: Scene, feed: PartitionFeed) -> None:
    async with work:
        assert await offsets(feed, 10) == list(range(30, 40))


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        # Nothing is known of the record before the place.
        (-1, [-1]),
        # The log knows nothing of the epoch, and has the offset.
        (7, [7, -1]),
        (2, [2]),
    ],
)
def test_a_log_that_has_lost_nothing_is_read_on(
    known: int, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        work = Scene()
        work.broker.logs[P0] = (0, 40)
        epochs(work, (0, 0), (2, 10))
        feed = place_at(work, 30, known, leader_epoch=9)
        await read_on(work, feed)
        assert work.broker.last_epochs[: len(asked)] == asked

    play(scene)
    assert caplog.messages == []


def test_what_is_out_of_range_is_so_whatever_the_epoch(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "smallest"})
        work.broker.logs[P0] = (30, 40)
        feed = place_at(work, 20, 5, leader_epoch=9)
        await read_on(work, feed)
        assert feed.epochs.before(20) == -1

    play(scene)
    assert caplog.messages[0].startswith("t-0: offset 20 is out of range")


@pytest.mark.fault("strangers-64")
@pytest.mark.parametrize("is_read", [True, False])
def test_who_read_an_epoch_that_the_log_never_had_goes_back_to_its_begin(is_read: bool) -> None:
    """Two unclean elections in a row: the first leader is back, with more than the second had."""

    async def scene() -> None:
        work = Scene()
        work.broker.logs[P0] = (0, 30)
        epochs(work, (0, 0), (1, 10))
        feed = work.feed(P0, 0) if is_read else place_at(work, 30, 1, leader_epoch=2)
        async with work:
            if is_read:
                await read_until_election(feed, 30)
            work.broker.logs[P0] = (0, 60)
            epochs(work, (0, 0), (2, 50))
            # Who has only committed does not know where the epoch began.
            begin = 10 if is_read else 29
            assert await offsets(feed, 60 - begin) == list(range(begin, 60))

    play(scene)


@pytest.mark.fault("strangers-85")
def test_a_log_that_begins_behind_the_place_by_now_is_read_from_its_start() -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "largest"})
        epochs(work, (0, 0), (1, 10))
        feed = work.feed(P0, 0)
        async with work:
            await read_until_election(feed, 30)
            work.broker.logs[P0] = (20, 60)
            epochs(work, (0, 0), (2, 50))
            assert await offsets(feed, 40) == list(range(20, 60))

    play(scene)


@pytest.mark.fault("strangers-76")
@pytest.mark.parametrize("policy", ["smallest", "none"])
def test_an_epoch_that_compaction_took_is_no_loss(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica that began after that does not know of it."""

    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": policy})
        work.broker.logs[P0] = (0, 40)
        work.broker.compacted = range(10, 30)
        epochs(work, (0, 0), (2, 30))
        feed = place_at(work, 30, 1, leader_epoch=3)
        async with work:
            assert await offsets(feed, 10) == list(range(30, 40))
            assert feed.rewinds == 0

    play(scene)
    assert caplog.messages == []


@pytest.mark.fault("strangers-63")
def test_each_fetch_names_the_epoch_of_the_leader_that_it_asks() -> None:
    """Else one that leads again is not told what was read: others led meanwhile."""

    async def scene() -> None:
        work = Scene()
        work.broker.leader_epochs = {P0: 4}
        feed = place_at(work, 10, 4, leader_epoch=4)
        async with work:
            assert await offsets(feed, 10) == list(range(10, 20))
            work.broker.leader_epochs = {P0: 6}
            await asyncio.sleep(3 * WAIT_S)
            assert (feed.trouble, work.given_back) == ("FENCED_LEADER_EPOCH", [feed])

    play(scene)


OUT_OF_RANGE = "t-0: offset 30 is out of range"


@pytest.mark.fault("strangers-65")
def test_a_leader_that_is_older_than_what_was_read_is_not_believed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "smallest"})
        work.broker.logs[P0] = (0, 20)
        epochs(work, (0, 0), (2, 10))
        feed = place_at(work, 30, 3, leader_epoch=2)
        async with work:
            for _ in range(100):
                await asyncio.sleep(2 * WAIT_S)
                assert (work.given_back[-1], feed.is_doubted) == (feed, True)
                assert not any(text.startswith(OUT_OF_RANGE) for text in caplog.messages)
                # Leaders are looked up, and it is still the same.
                work.fetcher.add(feed)
                if work.task.done():
                    work.task = asyncio.ensure_future(work.fetcher.run())
            await asyncio.sleep(2 * WAIT_S)
            feed.is_believed = True
            work.fetcher.add(feed)
            work.task = asyncio.ensure_future(work.fetcher.run())
            # No other leads: the topic was made again.
            assert await offsets(feed, 20) == list(range(20))

    play(scene)
    assert any(text.startswith(OUT_OF_RANGE) for text in caplog.messages)


@pytest.mark.fault("strangers-82")
def test_a_leader_that_is_older_than_another_is_not_believed_where_nothing_was_read() -> None:
    """Offsets in ZooKeeper have no epochs."""

    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "smallest"})
        work.broker.logs[P0] = (0, 20)
        feed = work.feed(P0, 30)
        feed.note_leader(3)
        feed.note_leader(2)
        async with work:
            await asyncio.sleep(2 * WAIT_S)
            assert (work.given_back, feed.is_doubted) == ([feed], True)
        feed.is_believed = True
        async with work:
            work.fetcher.add(feed)
            assert await offsets(feed, 20) == list(range(20))
            assert feed.youngest_epoch == 2

    play(scene)


@pytest.mark.fault("strangers-60")
def test_a_log_that_is_shorter_without_a_later_leader_is_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "smallest"})
        epochs(work, (0, 0))
        feed = work.feed(P0, 0)
        feed.leader_epoch = 0
        async with work:
            assert await offsets(feed, 30) == list(range(30))
            await asyncio.sleep(2 * WAIT_S)
            # The topic is deleted and made again, and gets 10 messages.
            work.broker.logs[P0] = (0, 10)
            assert await offsets(feed, 10) == list(range(10))

    play(scene)
    assert caplog.messages[0].startswith("t-0: offset 30 is out of range")


@pytest.mark.fault("strangers-59")
def test_what_is_handed_out_has_the_epoch_with_which_it_was_read() -> None:
    async def scene() -> None:
        work = Scene()
        epochs(work, (0, 0), (1, 10))
        feed = work.feed(P0, 0)
        async with work:
            await read_until_election(feed, 11)
            work.broker.logs[P0] = (0, 40)
            epochs(work, (0, 0), (2, 10))
            await asyncio.sleep(2 * WAIT_S)

            # The first message of epoch 1 is lost, and is in hand; others of it are queued.
            assert (feed.position, feed.epoch_before(10), feed.epoch_before(11)) == (10, 0, 1)
            assert await offsets(feed, 20) == [*range(11, 30), 10]
            known = feed.epoch_before(10), feed.epoch_before(11), feed.epoch_before(30)
            assert known == (0, 2, -1)

    play(scene)
