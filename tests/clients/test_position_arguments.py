"""Names, partitions and offsets of a wrong kind are refused before anything is asked."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from clients.admin import Admin
from clients.errors import SettingError
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.high_level.seeking import Timestamp, resolve
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

NO_PARTITION = r"is no TopicPartition$"
ONE_BY_ONE = r"is no TopicPartition: give each as an argument of its own, as by \*partitions$"

Call = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.pause([P0, P1]), ONE_BY_ONE),
        (lambda c: c.resume({P0}), ONE_BY_ONE),
        (lambda c: c.pause((P0, P1)), ONE_BY_ONE),
        (lambda c: c.pause("t-0"), NO_PARTITION),
        (lambda c: c.position([P0]), ONE_BY_ONE),
        (lambda c: c.seek([P0], 7), ONE_BY_ONE),
        (lambda c: c.seek_to_committed([P0]), ONE_BY_ONE),
        (lambda c: c.committed([P0]), ONE_BY_ONE),
        (lambda c: c.commit_offsets([P0]), "is no mapping from TopicPartition"),
        (lambda c: c.commit_offsets({"t-0": OffsetAndMetadata(7)}), NO_PARTITION),
        (lambda c: c.commit_offsets({P0: 7}), r"^t-0: 7 is no OffsetAndMetadata\(offset\)$"),
    ],
)
def test_a_consumer_says_what_it_wants(call: Call, said: str) -> None:
    async def scenario() -> None:
        settings = {"membership": "coordinator", "bootstrap.servers": "b:1", "group.id": "g"}
        connector = ConsumerConnector(settings)

        async def result() -> None:
            returned = call(connector)
            if inspect.isawaitable(returned):
                await returned

        with pytest.raises(TypeError, match=said):
            await result()

    run_in_virtual_time(scenario())


@pytest.mark.fault("strangers-67")
@pytest.mark.parametrize("offset", [-5, 1 << 70])
def test_an_offset_that_cannot_be_is_refused_by_all_who_commit(offset: int) -> None:
    impossible = {P0: OffsetAndMetadata(offset)}
    said = f"^t-0: offset {offset} cannot be committed$"

    async def scenario() -> None:
        settings = {"membership": "coordinator", "bootstrap.servers": "b:1", "group.id": "g"}
        with pytest.raises(ValueError, match=said):
            await ConsumerConnector(settings).commit_offsets(impossible)
        with pytest.raises(ValueError, match=said):
            await Admin("b:1").commit_group_offsets("g", impossible)
        with pytest.raises(ValueError, match=said):
            await SimpleConsumer("b", 1).commit_offsets("g", {P0: offset})

    run_in_virtual_time(scenario())


@pytest.mark.fault("strangers-165")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.delete_topics("ab"), r"^'ab' is one topic: give a list, as \['ab'\]$"),
        (lambda a: a.describe_topics(b"ab"), "^b'ab' is one topic"),
        (lambda a: a.delete_topics(["ab", 1]), "^topic 1 must be a str$"),
        (lambda a: a.delete_groups("ab"), "^'ab' is one group"),
        (lambda a: a.describe_groups("ab"), "^'ab' is one group"),
        (lambda a: a.describe_each_group("ab"), "^'ab' is one group"),
        (lambda a: a.offsets_of_each_group("ab"), "^'ab' is one group"),
        (lambda a: a.describe_transactions("ab"), "^'ab' is one transactional id"),
        (lambda a: a.fence_producers("ab"), "^'ab' is one transactional id"),
        (lambda a: a.describe_user_scram_credentials("ab"), "^'ab' is one user"),
        (lambda a: a.list_transactions(states="Ongoing"), "^'Ongoing' is one state"),
        (lambda a: a.delete_group_offsets("g", P0), "is one partition: give a list of them$"),
        (lambda a: a.group_offsets("g", P0), "is one partition: give a list of them$"),
        (lambda a: a.group_offsets("g", ["t-0"]), NO_PARTITION),
        (lambda a: a.elect_leaders(0, P0), "is one partition"),
        (lambda a: a.list_partition_reassignments(P0), "is one partition"),
        (lambda a: a.describe_producers(P0), "is one partition"),
    ],
)
def test_one_name_or_partition_is_no_list_of_them(call: Call, said: str) -> None:
    async def scenario() -> None:
        with pytest.raises(TypeError, match=said):
            await call(Admin("b:1"))

    run_in_virtual_time(scenario())


@pytest.mark.fault("strangers-165")
def test_one_value_or_a_mapping_of_headers_is_no_list_of_them() -> None:
    async def scenario() -> None:
        producer = Producer({"bootstrap.servers": "b:1"})
        for value in ("ab", b"ab", bytearray(b"ab")):
            with pytest.raises(TypeError, match=r"^send_many takes a list of values"):
                await producer.send_many("t", value)
        with pytest.raises(TypeError, match=r"^t: headers must be a list of pairs of key"):
            await producer.send("t", b"v", headers={"ab": b"v"})  # type: ignore[arg-type]
        await producer.close()

    run_in_virtual_time(scenario())


def test_a_misspelt_membership_is_named() -> None:
    said = "Invalid value coord for configuration membership: .* one of: zookeeper, coordinator"
    with pytest.raises(SettingError, match=said):
        ConsumerConnector({"membership": "coord", "bootstrap.servers": "b:1", "group.id": "g"})


def test_a_place_that_is_none_is_refused() -> None:
    nowhere: Any = None
    with pytest.raises(TypeError, match=r"^'7' is no offset, EARLIEST_TIME"):
        run_in_virtual_time(resolve(nowhere, P0, "7", nowhere))  # type: ignore[arg-type]
    for beyond in (-7, 1 << 63):
        with pytest.raises(ValueError, match=f"^t-0: there is no offset {beyond}$"):
            run_in_virtual_time(resolve(nowhere, P0, beyond, nowhere))
    with pytest.raises(ValueError, match="no time"):
        run_in_virtual_time(resolve(nowhere, P0, Timestamp(-1), nowhere))


def test_a_producer_says_what_offsets_it_wants() -> None:
    async def scenario() -> None:
        producer = Producer({"bootstrap.servers": "b:1", "transactional.id": "x"})
        wrong: Any = {P0: 7}
        with pytest.raises(TypeError, match="is no OffsetAndMetadata"):
            await producer.send_offsets_to_transaction(wrong, ConsumerGroupMetadata("g"))

    run_in_virtual_time(scenario())
