"""Feeds that are opened: what the application may do before they are fetched, and once replaced."""

from tests.clients.high_level.deliveries import P0, P1, Scene


def test_feed_that_is_replaced_delivers_nothing_more() -> None:
    work = Scene()
    work.delivery.start({P0: ("0", 5)})
    work.delivery.start({P0: ("0", 7)})
    former, feed = work.fetching
    assert (former.live, feed.live) == (False, True)


def test_feed_is_sought_and_paused_before_it_is_fetched() -> None:
    work = Scene()
    work.delivery.open({P0: ("0", 5), P1: ("0", 6)})
    work.delivery.seek(P0, 50)
    work.delivery.pause_partitions([P1])
    assert work.fetching == []
    assert {feed.partition for feed in work.delivery.owned} == {P0, P1}

    work.delivery.fetch_opened({P0, P1})
    sought, paused = work.fetching
    assert (sought.partition, sought.fetch_offset, sought.live) == (P0, 50, True)
    assert (paused.partition, paused.fetch_offset, paused.is_paused) == (P1, 6, True)


def test_feed_that_is_fetched_is_fetched_again_from_where_it_is_sought() -> None:
    work = Scene()
    work.delivery.open({P0: ("0", 5)})
    work.delivery.fetch_opened({P0})
    work.delivery.seek(P0, 50)
    assert [feed.fetch_offset for feed in work.fetching if feed.live] == [50]


def test_feed_that_is_closed_before_it_is_fetched_never_is() -> None:
    work = Scene()
    work.delivery.open({P0: ("0", 5), P1: ("0", 6)})
    work.delivery.stop({P0})
    work.delivery.fetch_opened({P0, P1})
    work.delivery.open({P0: ("0", 5)})
    work.delivery.abandon()
    work.delivery.fetch_opened({P0})
    assert [feed.partition for feed in work.fetching] == [P1]
