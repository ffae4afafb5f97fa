"""Names, partitions and offsets of a wrong kind are refused before anything is asked."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clients.admin import AclFilter, Admin, ConfigResource, NewTopic
from clients.arguments import check_broker, check_offsets, check_timeout, plain_int
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


def assert_admin_refuses(call: Call, said: str) -> None:
    async def scenario() -> None:
        with pytest.raises(TypeError, match=said):
            await call(Admin("b:1"))

    run_in_virtual_time(scenario())


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
        (lambda c: c.commit_offsets({P0: OffsetAndMetadata(7, b"")}), "metadata b'' must be a str"),
        (lambda c: c.create_message_streams({"t": 1}, 5), "^5 is no decoder: give a function"),
        (lambda c: c.commit(None), "^None is no MessageAndMetadata$"),
        (lambda c: c.create_message_streams_by_filter("t"), "^'t' is no TopicFilter: make a White"),
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
        (lambda a: a.describe_producers([P0], broker="0"), "^broker '0' must be an int$"),
        (lambda a: a.list_offsets({TopicPartition("t", "0"): -1}), "partition '0' must be an int$"),  # type: ignore[arg-type]
        (lambda a: a.describe_log_dirs(None), "^broker None must be an int$"),
        (lambda a: a.delete_topics(["ab", 1]), "^topic 1 must be a str$"),
        (lambda a: a.delete_groups("ab"), "^'ab' is one group"),
        (lambda a: a.describe_groups("ab"), "^'ab' is one group"),
        (lambda a: a.describe_each_group("ab"), "^'ab' is one group"),
        (lambda a: a.offsets_of_each_group("ab"), "^'ab' is one group"),
        (lambda a: a.describe_transactions("ab"), "^'ab' is one transactional id"),
        (lambda a: a.fence_producers("ab"), "^'ab' is one transactional id"),
        (lambda a: a.describe_user_scram_credentials("ab"), "^'ab' is one user"),
        (lambda a: a.list_transactions(states="Ongoing"), "^'Ongoing' is one state"),
        (lambda a: a.delete_group_offsets("g", P0), "is one TopicPartition: give a list of them$"),
        (lambda a: a.group_offsets("g", P0), "is one TopicPartition: give a list of them$"),
        (lambda a: a.group_offsets("g", ["t-0"]), NO_PARTITION),
        (lambda a: a.elect_leaders(0, P0), "is one TopicPartition"),
        (lambda a: a.list_partition_reassignments(P0), "is one TopicPartition"),
        (lambda a: a.describe_producers(P0), "is one TopicPartition"),
    ],
)
def test_one_name_or_partition_is_no_list_of_them(call: Call, said: str) -> None:
    assert_admin_refuses(call, said)


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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.create_topics("ab"), "^'a' is no NewTopic$"),
        (lambda a: a.create_topics(NewTopic("t")), "is one NewTopic: give a list of them$"),
        (lambda a: a.create_partitions(["t"]), r"^\['t'\] is no mapping from str$"),
        (lambda a: a.describe_configs(ConfigResource.topic("t")), "is one ConfigResource"),
        (lambda a: a.describe_each_config(5), "^5 is no list of ConfigResource$"),
        (lambda a: a.alter_configs({"t": {}}), "^'t' is no ConfigResource$"),
        (lambda a: a.incremental_alter_configs(None), "^None is no mapping from ConfigResource$"),
        (lambda a: a.alter_client_quotas({"user": {}}), "^'user' is no tuple$"),
        (lambda a: a.alter_user_scram_credentials("u"), "^'u' is no ScramUpsertion"),
        (lambda a: a.create_acls([AclFilter()]), "is no AclBinding$"),
        (lambda a: a.delete_acls(AclFilter()), "is one AclFilter: give a list of them$"),
        (lambda a: a.alter_partition_reassignments([P0]), "is no mapping from TopicPartition$"),
        (lambda a: a.alter_replica_log_dirs({P0: "/d"}), "is no TopicPartitionReplica$"),
        (lambda a: a.list_offsets([P0]), "is no mapping from TopicPartition$"),
        (lambda a: a.first_timestamps({"t": 0}), "^'t' is no TopicPartition$"),
        (lambda a: a.remove_group_members("g", ["m"], ""), "^'m' is no GroupMemberId$"),
    ],
)
def test_an_admin_says_of_what_kind_its_arguments_are(call: Call, said: str) -> None:
    assert_admin_refuses(call, said)


@pytest.mark.fault("strangers-166")
@pytest.mark.parametrize("count", [True, 1.0, "1", None])
def test_a_number_of_streams_that_others_could_not_read_is_refused(count: Any) -> None:
    async def scenario() -> None:
        settings = {"zookeeper.connect": "z:1", "group.id": "g"}
        with pytest.raises(TypeError, match=r"^'t': .* streams: must be an int$"):
            await ConsumerConnector(settings).create_message_streams({"t": count})

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("name", ["bad\ud800", "x" * 40_000])
def test_a_name_that_no_request_can_hold_is_refused_before_any_is_sent(name: str) -> None:
    async def scenario() -> None:
        with pytest.raises(ValueError, match=r"^group '.*' has "):
            await Admin("b:1").describe_each_group(["good", name])

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("streams", ["t", ["t"], {5: 1}])
def test_streams_are_a_mapping_from_topics(streams: Any) -> None:
    async def scenario() -> None:
        settings = {"zookeeper.connect": "z:1", "group.id": "g"}
        with pytest.raises(TypeError, match=r"is no mapping from str$|^5 is no str$"):
            await ConsumerConnector(settings).create_message_streams(streams)

    run_in_virtual_time(scenario())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"port": -1}, "^Invalid value -1 for configuration port: Value must be from 0 to 65535$"),
        ({"port": True}, "Not a number of type INT"),
        ({"host": None}, "^Invalid value None for configuration host: Expected value to be a str"),
        ({"so_timeout_ms": float("nan")}, "^Invalid value nan for configuration request.timeout"),
        ({"buffer_size": 1 << 40}, "configuration receive.buffer.bytes: Not a number of type INT"),
        ({"client_id": "x" * 40_000}, "can be sent with at most 32767$"),
        ({"broker_version": "x"}, "'x' is not a version of Kafka"),
    ],
)
def test_a_simple_consumer_says_what_it_wants(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        SimpleConsumer(**{"host": "h", "port": 1, **arguments})


def test_metadata_that_no_request_can_hold_is_refused_by_all_who_commit() -> None:
    impossible = {P0: OffsetAndMetadata(7, "x" * 40_000)}

    async def scenario() -> None:
        settings = {"membership": "coordinator", "bootstrap.servers": "b:1", "group.id": "g"}
        for committed in (
            ConsumerConnector(settings).commit_offsets(impossible),
            Admin("b:1").commit_group_offsets("g", impossible),
            SimpleConsumer("b", 1).commit_offsets("g", impossible),
        ):
            with pytest.raises(
                ValueError, match=r"^t-0: metadata has 40000 bytes, and can be sent"
            ):
                await committed

    run_in_virtual_time(scenario())


def test_numbers_of_other_libraries_and_null_metadata_are_taken() -> None:
    check_broker(np.int64(1))  # type: ignore[arg-type]
    for timeout_ms in (np.int64(5), np.float64(5)):
        check_timeout(timeout_ms)  # type: ignore[arg-type]
    check_offsets({P0: OffsetAndMetadata(5, None)})  # type: ignore[arg-type]


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


def test_a_number_of_numpy_is_a_number_of_streams() -> None:
    assert type(plain_int(np.int64(2))) is int
    for no_number in (True, 1.0, "1", None):
        assert plain_int(no_number) is no_number
