"""Remedies in the high-level consumer: streams, deliveries, commits."""

from tests.mutants.remedy import Remedy

HIGH_LEVEL = "tests/clients/high_level"

TESTS: dict[str, str] = {
    "clients.blocking": "tests/clients/test_blocking.py",
    "clients.high_level.streams": f"{HIGH_LEVEL}/streams",
    "clients.high_level.fetchers": f"{HIGH_LEVEL}/fetchers",
    "clients.high_level.leader_finder": f"{HIGH_LEVEL}/test_leader_finder.py",
    "clients.high_level.connector": f"{HIGH_LEVEL}/test_connector_in_memory.py",
    "groups.zookeeper.registration": f"{HIGH_LEVEL}/test_connector_in_memory.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "A18",
        "what is not owned is an error though the rest is tried again",
        "clients.high_level.delivery:StreamDelivery._try_to_commit",
        "foreign |= {partition for partition in candidates if partition not in self._feeds}",
        "foreign.clear()\n"
        "foreign |= {partition for partition in candidates if partition not in self._feeds}",
        f"{HIGH_LEVEL}/test_repeated_commits.py",
    ),
    Remedy(
        "A3",
        "a commit under way over a reset is not noted",
        "clients.high_level.delivery:StreamDelivery._note_committed",
        "feed.rewinds == rewinds[partition]",
        "True",
        f"{HIGH_LEVEL}/test_delivery.py",
    ),
    Remedy(
        "A7",
        "who could not create streams for want of ZooKeeper may try again",
        "clients.high_level.connector:ConsumerConnector._create_once",
        "self._created = False",
        "pass",
    ),
    Remedy(
        "A3",
        "a reset is a position at once",
        "clients.high_level.streams:PartitionFeed.position",
        "position = reset.position_after(position)",
        "",
        f"{HIGH_LEVEL}/test_delivery.py",
    ),
    Remedy(
        "A3",
        "in the stories, too, a partition is reset once",
        "clients.high_level.streams:PartitionFeed.position",
        "position = reset.position_after(position)",
        "",
        "tests/groups/zookeeper/test_story.py"
        "::test_thirty_stories_in_which_something_went_wrong_hold[0]",
    ),
    Remedy(
        "A3",
        "what a truncated log still holds is not skipped",
        "clients.high_level.streams:Reset.position_after",
        "min(position, self.offset)",
        "self.offset",
    ),
    Remedy(
        "A3",
        "a full stream does not delay a reset",
        "clients.high_level.fetchers:BrokerFetcher._is_ready",
        "due or feed.stream.has_room",
        "feed.stream.has_room",
    ),
    Remedy(
        "A10",
        "a turn is over when its time is, whatever it has still to hand out",
        "clients.high_level.streams:_messages",
        "length_hint(rows) and now() < turn_ends",
        "length_hint(rows)",
    ),
    Remedy(
        "A10",
        "the clock is looked at every few messages",
        "clients.high_level.streams:_messages",
        "min(stretch * 2, LOOK_EVERY)",
        "stretch * 2",
    ),
    Remedy(
        "A12",
        "streams are at hand before the first rebalance has ended",
        "clients.high_level.connector:ConsumerConnector.create_message_streams",
        """self._streams = streams = {
            topic: [self._new_stream(topic, i, key_decoder, value_decoder) for i in range(count)]
            for topic, count in subscription.streams.items()
        }""",
        """streams = {
            topic: [self._new_stream(topic, i, key_decoder, value_decoder) for i in range(count)]
            for topic, count in subscription.streams.items()
        }""",
    ),
    Remedy(
        "A13",
        "what other members could not read is not registered",
        "clients.high_level.connector:ConsumerConnector.create_message_streams",
        "check_subscription(subscription)",
        "",
    ),
    Remedy(
        "A13",
        "no more streams than other members believe in",
        "groups.zookeeper.registration:check_subscription",
        "1 <= num_streams <= MAX_STREAMS",
        "num_streams >= 1",
    ),
    Remedy(
        "A5",
        "nothing begins on a loop that has ended",
        "clients.loop_thread:LoopThread.start",
        "not self._closed",
        "True",
        tests="tests/clients/test_blocking.py",
    ),
    Remedy(
        "A5",
        "a call that the close has cancelled says so",
        "clients.loop_thread:LoopThread.call",
        "not self._closed",
        "True",
        tests="tests/clients/test_blocking.py",
    ),
    Remedy(
        "A5",
        "an iteration ends when its client is closed",
        "clients.blocking:BlockingStream.__next__",
        "ClientClosed",
        "()",
    ),
    Remedy(
        "A5",
        "every name of a close ends the thread",
        "clients.blocking:twin",
        "setattr(Twin, name, kind.close)",
        "",
    ),
    Remedy(
        "A5",
        "a listener is not called on the loop",
        "clients.blocking:BlockingConnector.set_consumer_rebalance_listener",
        "_OffTheLoop(listener)",
        "listener",
    ),
    Remedy(
        "A5",
        "what a loop that ends has not taken fails",
        "clients.producer.handover:Handover.close",
        'waiting.set_exception(ProducerClosed("the producer was closed meanwhile"))',
        "",
        "tests/clients/producer/test_handover.py",
    ),
    Remedy(
        "A17",
        "a stream calls its loop for a turn and not for each message",
        "clients.blocking:BlockingStream.__next__",
        """
        for message in self._original.turn:
            return message
        while self._loop.call(self._original.begin_turn()):
            for message in self._original.turn:
                return message
        """,
        """
        while self._loop.call(self._original.begin_turn()):
            for message in self._original.turn:
                return message
        """,
    ),
    Remedy(
        "A17",
        "who sends does not wait while there is room",
        "clients.producer.handover:Handover.send",
        "len(self._queue) < MOST_QUEUED",
        "False",
        "tests/clients/producer/test_handover.py",
    ),
    Remedy(
        "B1",
        "what is fetched follows its leader",
        "clients.high_level.leader_finder:LeaderFinder._find",
        "self._follow_leaders()",
        "",
    ),
    Remedy(
        "B1",
        "of two brokers that read one partition, one counts",
        "clients.high_level.fetchers:BrokerFetcher._serve",
        "self._is_ours(asked.feed) and asked.feed.fetch_offset == asked.offset",
        "asked.feed.live",
    ),
    Remedy(
        "C4",
        "a second task on a stream is refused",
        "clients.high_level.streams:MessageStream.begin_turn",
        "self._in_use",
        "False",
    ),
)
