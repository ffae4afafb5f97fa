"""Every znode is written to the byte, and read as other versions wrote it."""

import json
from typing import Any

import pytest

from zk.znodes import (
    STARTUP_PATHS,
    BrokerId,
    BrokerSeqId,
    ClusterId,
    ConfigChange,
    ConsumerGroup,
    ConsumerOffset,
    ConsumerRegistration,
    Controller,
    ControllerEpoch,
    DeleteTopic,
    Endpoint,
    EntityConfig,
    IsrChange,
    LogDirEvent,
    PartitionOwner,
    PartitionState,
    PreferredReplicaElection,
    ProducerIdBlock,
    ReassignPartitions,
    TopicAssignment,
    ZnodeError,
    parse_sequence_number,
)

MS = 1418710530123
WIRE = {
    "broker": (
        BrokerId((Endpoint("PLAINTEXT", "host1", 9092),), MS),
        b'{"version":4,"host":"host1","port":9092,"endpoints":["PLAINTEXT://host1:9092"],'
        b'"jmx_port":-1,"timestamp":"1418710530123",'
        b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
    ),
    "broker with listeners and rack": (
        BrokerId(
            (
                Endpoint("CLIENT", "host1", 9093, "SASL_SSL"),
                Endpoint("REPLICATION", "::1", 9092, "PLAINTEXT"),
            ),
            MS,
            jmx_port=9999,
            rack="r1",
        ),
        b'{"version":4,"host":"::1","port":9092,'
        b'"endpoints":["CLIENT://host1:9093","REPLICATION://[::1]:9092"],'
        b'"jmx_port":9999,"timestamp":"1418710530123",'
        b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL","REPLICATION":"PLAINTEXT"},'
        b'"rack":"r1"}',
    ),
    "broker without plaintext": (
        BrokerId((Endpoint("SSL", "host1", 9093, "SSL"),), MS),
        b'{"version":4,"host":null,"port":-1,"endpoints":["SSL://host1:9093"],"jmx_port":-1,'
        b'"timestamp":"1418710530123","listener_security_protocol_map":{"SSL":"SSL"}}',
    ),
    "cluster id": (
        ClusterId("4cPZ7h_xQ1yJ0a-b2c3d4e"),
        b'{"version":"1","id":"4cPZ7h_xQ1yJ0a-b2c3d4e"}',
    ),
    "topic": (
        TopicAssignment({0: (1, 2), 1: (2, 3), 10: (3, 1)}),
        b'{"version":1,"partitions":{"0":[1,2],"1":[2,3],"10":[3,1]}}',
    ),
    "partition state": (
        PartitionState(leader=-1, leader_epoch=7, isr=(2, 1), controller_epoch=3),
        b'{"controller_epoch":3,"leader":-1,"version":1,"leader_epoch":7,"isr":[2,1]}',
    ),
    "controller": (
        Controller(2, MS),
        b'{"version":1,"brokerid":2,"timestamp":"1418710530123"}',
    ),
    "controller epoch": (ControllerEpoch(12), b"12"),
    "reassignment": (
        ReassignPartitions({("t", 0): (1, 2), ("u", 3): (2,)}),
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},'
        b'{"topic":"u","partition":3,"replicas":[2]}]}',
    ),
    "preferred replica election": (
        PreferredReplicaElection((("t", 0), ("u", 3))),
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}',
    ),
    "isr change": (
        IsrChange((("t", 0),)),
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    ),
    "log dir event": (LogDirEvent(2), b'{"version":1,"broker":2,"event":1}'),
    "producer id block": (
        ProducerIdBlock(2, 1000, 1999),
        b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}',
    ),
    "config": (
        EntityConfig({"retention.ms": "1000", "cleanup.policy": "compact,delete"}),
        b'{"version":1,"config":{"retention.ms":"1000","cleanup.policy":"compact,delete"}}',
    ),
    "config change": (
        ConfigChange("topics/foo"),
        b'{"version":2,"entity_path":"topics/foo"}',
    ),
    "static registration": (
        ConsumerRegistration({"topic1": 2}, "static", MS),
        b'{"version":1,"subscription":{"topic1":2},"pattern":"static","timestamp":"1418710530123"}',
    ),
    "wildcard registration": (
        ConsumerRegistration({'test-(?!bad\\b)[\\w/"]+é\t': 1}, "white_list", MS),
        b'{"version":1,"subscription":{"test-(?!bad\\\\b)[\\\\w/\\"]+\xc3\xa9\\t":1},'
        b'"pattern":"white_list","timestamp":"1418710530123"}',
    ),
    "empty registration": (
        ConsumerRegistration({}, "static", MS),
        b'{"version":1,"subscription":{},"pattern":"static","timestamp":"1418710530123"}',
    ),
    "owner": (PartitionOwner("g_host-1418-1a2b3c4d-0"), b"g_host-1418-1a2b3c4d-0"),
    "offset": (ConsumerOffset(9876543210), b"9876543210"),
}


@pytest.mark.parametrize(("znode", "data"), WIRE.values(), ids=WIRE.keys())
def test_znode_is_written_to_the_byte_and_read_back(znode: Any, data: bytes) -> None:
    assert znode.encode() == data
    assert type(znode).decode(data) == znode


def test_nodes_without_payload_say_null_or_empty() -> None:
    assert DeleteTopic.encode() is None
    assert BrokerSeqId.encode() == b""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (BrokerId.path(7), "/brokers/ids/7"),
        (BrokerSeqId.path(), "/brokers/seqid"),
        (ClusterId.path(), "/cluster/id"),
        (TopicAssignment.path("t"), "/brokers/topics/t"),
        (TopicAssignment.partitions_path("t"), "/brokers/topics/t/partitions"),
        (TopicAssignment.partition_path("t", 3), "/brokers/topics/t/partitions/3"),
        (PartitionState.path("t", 3), "/brokers/topics/t/partitions/3/state"),
        (Controller.path(), "/controller"),
        (ControllerEpoch.path(), "/controller_epoch"),
        (DeleteTopic.path("t"), "/admin/delete_topics/t"),
        (ReassignPartitions.path(), "/admin/reassign_partitions"),
        (PreferredReplicaElection.path(), "/admin/preferred_replica_election"),
        (IsrChange.prefix(), "/isr_change_notification/isr_change_"),
        (LogDirEvent.prefix(), "/log_dir_event_notification/log_dir_event_"),
        (ProducerIdBlock.path(), "/latest_producer_id_block"),
        (EntityConfig.path("topics", "a.b_c-d"), "/config/topics/a.b_c-d"),
        (EntityConfig.path("clients", "<default>"), "/config/clients/<default>"),
        (EntityConfig.path("users", "CN=a b*~+é"), "/config/users/CN%3Da%20b%2A%7E%2B%C3%A9"),
        (ConfigChange.prefix(), "/config/changes/config_change_"),
        (ConsumerGroup.path("g"), "/consumers/g"),
        (ConsumerGroup.ids_path("g"), "/consumers/g/ids"),
        (ConsumerGroup.owners_path("g"), "/consumers/g/owners"),
        (ConsumerGroup.topic_owners_path("g", "t"), "/consumers/g/owners/t"),
        (ConsumerGroup.offsets_path("g"), "/consumers/g/offsets"),
        (ConsumerGroup.topic_offsets_path("g", "t"), "/consumers/g/offsets/t"),
        (ConsumerRegistration.path("g", "g_c"), "/consumers/g/ids/g_c"),
        (PartitionOwner.path("g", "t", 3), "/consumers/g/owners/t/3"),
        (ConsumerOffset.path("g", "t", 3), "/consumers/g/offsets/t/3"),
        (BrokerId.directory(), "/brokers/ids"),
        (BrokerId.path("1"), "/brokers/ids/1"),
        (TopicAssignment.directory(), "/brokers/topics"),
    ],
)
def test_path_is_kafkas(path: str, expected: str) -> None:
    assert path == expected


def test_a_broker_creates_kafkas_paths_when_it_starts() -> None:
    assert STARTUP_PATHS == (
        "/consumers",
        "/brokers/ids",
        "/brokers/topics",
        "/config/changes",
        "/admin/delete_topics",
        "/brokers/seqid",
        "/isr_change_notification",
        "/latest_producer_id_block",
        "/log_dir_event_notification",
        "/config/topics",
        "/config/clients",
        "/config/users",
        "/config/brokers",
    )


def test_notifications_are_made_in_the_directory_that_is_watched() -> None:
    for kind in (IsrChange, LogDirEvent, ConfigChange):
        assert kind.prefix().startswith(f"{kind.directory()}/")
        assert kind.directory() in STARTUP_PATHS


def test_sequence_number_is_the_last_ten_digits() -> None:
    assert parse_sequence_number("isr_change_0000000042") == 42
    with pytest.raises(ZnodeError):
        parse_sequence_number("isr_change_")


@pytest.mark.parametrize(
    ("keys", "endpoints", "rack"),
    [
        ({"version": 1, "jmx_port": 9999}, (Endpoint("PLAINTEXT", "h", 9),), None),
        (
            {"version": 2, "endpoints": ["PLAINTEXT://h:9", "SSL://h:10"]},
            (Endpoint("PLAINTEXT", "h", 9), Endpoint("SSL", "h", 10, "SSL")),
            None,
        ),
        (
            {"version": 3, "endpoints": ["PLAINTEXT://:9"], "rack": "r"},
            (Endpoint("PLAINTEXT", "", 9),),
            "r",
        ),
        (
            {
                "version": 4,
                "endpoints": ["IN://[fe80::1%eth0]:9"],
                "listener_security_protocol_map": {"IN": "PLAINTEXT"},
                "rack": None,
            },
            (Endpoint("IN", "fe80::1%eth0", 9, "PLAINTEXT"),),
            None,
        ),
        (
            {
                "version": 5,
                "endpoints": ["IN://h:9"],
                "listener_security_protocol_map": {"IN": "SSL"},
                "features": {"f": {"min_version": 1, "max_version": 2}},
            },
            (Endpoint("IN", "h", 9, "SSL"),),
            None,
        ),
    ],
    ids=["v1", "v2", "v3", "v4", "v5"],
)
def test_broker_of_every_version_is_read(
    keys: dict[str, Any], endpoints: tuple[Endpoint, ...], rack: str | None
) -> None:
    stored = {"timestamp": "1418710530123", "port": 9, "host": "h", **keys}
    broker = BrokerId.decode(json.dumps(stored).encode())
    assert broker.endpoints == endpoints
    assert broker.rack == rack
    assert broker.timestamp_ms == MS
    assert (broker.host, broker.port) == ("h", 9)
    assert broker.version == keys["version"]


def test_broker_of_an_old_version_is_written_as_the_fourth() -> None:
    old = b'{"jmx_port":-1,"timestamp":"1418710530123","host":"h","version":1,"port":9}'
    assert BrokerId.decode(old).encode() == BrokerId((Endpoint("PLAINTEXT", "h", 9),), MS).encode()


def test_broker_features_survive_a_rewrite() -> None:
    stored = (
        b'{"version":5,"host":"h","port":9,"endpoints":["PLAINTEXT://h:9"],"jmx_port":-1,'
        b'"timestamp":"1418710530123","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"features":{"f":{"min_version":1,"max_version":2}}}'
    )
    assert BrokerId.decode(stored).encode() == stored


def test_newer_topic_keeps_version_and_what_we_do_not_know() -> None:
    stored = (
        b'{"version":3,"partitions":{"0":[1]},"topic_id":"dGVzdC10b3BpYy1pZC0xMjM",'
        b'"adding_replicas":{"0":[2]},"removing_replicas":{}}'
    )
    topic = TopicAssignment.decode(stored)
    assert topic.partitions == {0: (1,)}
    assert topic.encode() == stored


def test_partitions_are_ordered_by_number() -> None:
    topic = TopicAssignment.decode(b'{"partitions":{"10":[1],"9":[2],"0":[3]},"version":1}')
    assert list(topic.partitions) == [0, 9, 10]


def test_controller_may_be_a_bare_number() -> None:
    assert Controller.decode(b"3") == Controller(3, -1)


def test_cluster_id_with_a_numeric_version_is_read() -> None:
    assert ClusterId.decode(b'{"version":1,"id":"x"}') == ClusterId("x")


def test_config_change_of_the_first_version_is_read() -> None:
    change = ConfigChange.decode(b'{"version":1,"entity_type":"topics","entity_name":"foo"}')
    assert change == ConfigChange("topics/foo")


def test_registration_needs_neither_version_nor_timestamp() -> None:
    stored = b'{"pattern":"black_list","subscription":{"a|b":1},"from":"elsewhere"}'
    member = ConsumerRegistration.decode(stored)
    assert member.subscription == {"a|b": 1}
    assert member.pattern == "black_list"
    assert member.extra == {"from": "elsewhere"}


def test_owner_names_its_consumer_before_the_last_dash() -> None:
    assert PartitionOwner("g_host-1418-1a2b3c4d-10").consumer_id == "g_host-1418-1a2b3c4d"


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (ConsumerRegistration, b'{"version":1,"subscription":{}}', "no 'pattern'"),
        (ConsumerRegistration, b'{"version":1,"pattern":"static"}', "no 'subscription'"),
        (ConsumerRegistration, b'{"pattern":7,"subscription":{}}', "must be a string"),
        (ConsumerRegistration, b'{"pattern":"static","subscription":{"t":"1"}}', "an integer"),
        (ConsumerRegistration, b'{"pattern":"static","subscription":{"t":true}}', "an integer"),
        (ConsumerRegistration, b'{"pattern":"static","subscription":[]}', "must be an object"),
        (ConsumerRegistration, None, "null"),
        (ConsumerRegistration, b"", "empty"),
        (ConsumerRegistration, b"{", "not JSON"),
        (ConsumerRegistration, b"\xff", "not JSON"),
        (ConsumerRegistration, b"[" * 100_000, "not JSON"),
        (ConsumerRegistration, b"[]", "not a JSON object"),
        (BrokerId, b'{"host":"h","port":9}', "no 'version'"),
        (BrokerId, b'{"version":4,"host":"h","port":9}', "no 'endpoints'"),
        (BrokerId, b'{"version":4,"endpoints":["h:9"]}', "LISTENER://host:port"),
        (TopicAssignment, b'{"version":1}', "no 'partitions'"),
        (TopicAssignment, b'{"partitions":{"x":[1]}}', "must be a partition"),
        (TopicAssignment, b'{"partitions":{"0":["1"]}}', "an integer"),
        (PartitionState, b'{"leader":1,"leader_epoch":0,"isr":[1]}', "no 'controller_epoch'"),
        (Controller, b'{"version":1}', "no 'brokerid'"),
        (Controller, b"3000000000", "must be from 0 to 2147483647"),
        (Controller, b"-1", "must be from 0 to 2147483647"),
        (ControllerEpoch, None, "not a decimal number"),
        (ControllerEpoch, b" 1", "not a decimal number"),
        (ConsumerOffset, b"1.5", "not a decimal number"),
        (ConsumerOffset, b"", "not a decimal number"),
        (ConsumerOffset, b"9223372036854775808", "beyond 64 bits"),
        (ConsumerOffset, b"1" * 5000, "beyond 64 bits"),
        (PartitionOwner, None, "null"),
        (PartitionOwner, b"\xff", "not UTF-8"),
        (ConfigChange, b'{"version":3,"entity_path":"topics/t"}', "version 3"),
        (ReassignPartitions, b'{"partitions":[{"topic":"t"}]}', "no 'partition'"),
        (IsrChange, b'{"partitions":{}}', "must be an array"),
        (ProducerIdBlock, None, "null"),
        (EntityConfig, b'{"version":1,"config":{"k":1}}', "must be a string"),
    ],
)
def test_what_is_malformed_is_refused_with_path_and_reason(
    kind: Any, data: bytes | None, reason: str
) -> None:
    with pytest.raises(ZnodeError, match=reason) as refused:
        kind.decode(data, "/the/path")
    assert refused.value.path == "/the/path"
    assert str(refused.value).startswith("/the/path: ")


@pytest.mark.fault("strangers-154")
@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"listener_security_protocol_map": {"A": "FOO"}}, "must be one of PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": {}}, "must be one of PLAINTEXT, SSL"),
        ({"endpoints": ["A://h:2147483648"]}, "from -1 to 2147483647"),
        ({"version": 1, "port": 1 << 40}, "from -1 to 2147483647"),
        ({"rack": "\ud800"}, "has no UTF-8 form"),
        ({"rack": "r" * 40_000}, "at most 32767"),
        ({"host": "\ud800"}, "has no UTF-8 form"),
        ({"endpoints": ["A\ud800://h:9"]}, "has no UTF-8 form"),
    ],
)
def test_a_registration_that_cannot_be_told_to_brokers_is_refused(
    keys: dict[str, Any], reason: str
) -> None:
    """The controller told no broker anything any more."""
    registration = {
        "version": 5,
        "host": "h",
        "port": 9,
        "endpoints": ["A://h:9"],
        "listener_security_protocol_map": {"A": "plaintext"},
    }
    assert BrokerId.decode(json.dumps(registration).encode()).endpoints[0] == Endpoint(
        "A", "h", 9, "PLAINTEXT"
    )
    with pytest.raises(ZnodeError, match=reason):
        BrokerId.decode(json.dumps(registration | keys).encode())


def test_a_child_whose_name_is_no_id_is_no_broker() -> None:
    names = ["0", "x", "2147483647", "2147483648", "9" * 5000, "-1"]
    assert BrokerId.ids_of(names) == [0, 2147483647]


def test_refusal_without_a_path_names_the_kind_of_node() -> None:
    with pytest.raises(ZnodeError, match="/consumers/<group>/ids/<consumer>: no 'pattern'"):
        ConsumerRegistration.decode(b"{}")


def test_topic_on_the_move_says_which_replicas_come_and_go() -> None:
    topic = TopicAssignment({0: (1,), 1: (1,)}).reassign({0: ((2, 1), (2,), (1,))})
    data = (
        b'{"version":2,"partitions":{"0":[2,1],"1":[1]},'
        b'"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    )
    assert topic.encode() == data
    assert TopicAssignment.decode(data) == topic
    arrived = topic.reassign({0: ((2,), (), ())})
    assert arrived.encode() == (
        b'{"version":2,"partitions":{"0":[2],"1":[1]},"adding_replicas":{},"removing_replicas":{}}'
    )


def test_old_topic_moved_by_the_tool_stays_old() -> None:
    moved = TopicAssignment({0: (1,)}).reassign({0: ((2, 1), (), ())})
    assert moved.encode() == b'{"version":1,"partitions":{"0":[2,1]}}'


def test_tools_reassignment_keeps_what_we_do_not_know() -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}],"by":"me"}'
    assert ReassignPartitions.decode(data).encode() == data
