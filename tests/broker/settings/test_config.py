"""Kafka's server.properties: settings with an effect, with a note, and refused ones."""

from __future__ import annotations

import re

import pytest

from broker.authorization.acl_index import Policy
from broker.controller.state import LeaderRebalance
from broker.network.connection_quotas import Limits
from broker.network.session import Principal
from broker.settings.accepted_settings import ACCEPTED, REFUSED
from broker.settings.config import LOG_NAMES, BrokerConfig, load_broker_config
from broker.settings.tls_settings import load_tls_config
from compaction.config import CleanerConfig
from groups.coordinator.config import GroupConfig
from groups.transactions.config import TransactionsConfig
from offsets.config import OffsetsConfig
from protocol.settings import (
    HIDDEN,
    SettingError,
    declared_settings,
    is_secret,
    parse_properties,
)
from protocol.tls.config import ServerTlsConfig
from tests.broker.settings.shipped_config import SHIPPED
from zk.znodes import Endpoint

# What KafkaConfig.configNames lists in Apache Kafka 2.8.2.
_KAFKA_NAMES = """
    advertised.host.name advertised.listeners advertised.port alter.config.policy.class.name
    alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name
    auto.create.topics.enable auto.leader.rebalance.enable background.threads
    broker.heartbeat.interval.ms broker.id broker.id.generation.enable broker.rack
    broker.session.timeout.ms client.quota.callback.class compression.type
    connection.failed.authentication.delay.ms connections.max.idle.ms connections.max.reauth.ms
    control.plane.listener.name controlled.shutdown.enable controlled.shutdown.max.retries
    controlled.shutdown.retry.backoff.ms controller.listener.names
    controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
    controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.quorum.voters controller.quota.window.num controller.quota.window.size.seconds
    controller.socket.timeout.ms create.topic.policy.class.name default.replication.factor
    delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.master.key delegation.token.max.lifetime.ms delegation.token.secret.key
    delete.records.purgatory.purge.interval.requests delete.topic.enable fetch.max.bytes
    fetch.purgatory.purge.interval.requests group.initial.rebalance.delay.ms
    group.max.session.timeout.ms group.max.size group.min.session.timeout.ms host.name
    initial.broker.registration.timeout.ms inter.broker.listener.name
    inter.broker.protocol.version kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.imbalance.check.interval.seconds leader.imbalance.per.broker.percentage
    listener.security.protocol.map listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
    log.cleaner.delete.retention.ms log.cleaner.enable log.cleaner.io.buffer.load.factor
    log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.dir log.dirs
    log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
    log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.index.interval.bytes log.index.size.max.bytes log.message.downconversion.enable
    log.message.format.version log.message.timestamp.difference.max.ms log.message.timestamp.type
    log.preallocate log.retention.bytes log.retention.check.interval.ms log.retention.hours
    log.retention.minutes log.retention.ms log.roll.hours log.roll.jitter.hours log.roll.jitter.ms
    log.roll.ms log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
    max.connections max.connections.per.ip max.connections.per.ip.overrides
    max.incremental.fetch.session.cache.slots message.max.bytes metadata.log.dir metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms min.insync.replicas
    node.id num.io.threads num.network.threads num.partitions num.recovery.threads.per.data.dir
    num.replica.alter.log.dirs.threads num.replica.fetchers offset.metadata.max.bytes
    offsets.commit.required.acks offsets.commit.timeout.ms offsets.load.buffer.size
    offsets.retention.check.interval.ms offsets.retention.minutes offsets.topic.compression.codec
    offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
    password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret port
    principal.builder.class process.roles producer.purgatory.purge.interval.requests
    queued.max.request.bytes queued.max.requests quota.consumer.default quota.producer.default
    quota.window.num quota.window.size.seconds replica.fetch.backoff.ms replica.fetch.max.bytes
    replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id
    sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.mechanism.controller.protocol
    sasl.mechanism.inter.broker.protocol sasl.server.callback.handler.class
    sasl.server.max.receive.size security.inter.broker.protocol security.providers
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.principal.mapping.rules ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size transaction.state.log.min.isr
    transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transactional.id.expiration.ms
    unclean.leader.election.enable zookeeper.clientCnxnSocket zookeeper.connect
    zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests zookeeper.session.timeout.ms
    zookeeper.set.acl zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable
    zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
    zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
    zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable
    zookeeper.ssl.protocol zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
    zookeeper.ssl.truststore.type zookeeper.sync.time.ms
"""
KAFKA_NAMES = _KAFKA_NAMES.split()


def load(**given: str) -> BrokerConfig:
    """Return the config of these settings, named with double underscores for dots."""
    dotted = {name.replace("__", "."): value for name, value in given.items()}
    return load_broker_config({"zookeeper.connect": "zk:2181"} | dotted)[0]


def refusal(**given: str) -> SettingError:
    with pytest.raises(SettingError) as refused:
        load(**given)
    return refused.value


def test_the_file_kafka_is_shipped_with_is_taken_unchanged() -> None:
    config, notes = load_broker_config(parse_properties(SHIPPED))
    assert (config.broker_id, config.zookeeper_connect) == (0, "localhost:2181")
    assert (config.directories, config.endpoints) == (
        ("/tmp/kafka-logs",),
        (Endpoint("PLAINTEXT", "", 9092),),
    )
    assert config.log.retention_ms == 168 * 3_600_000
    assert config.offsets.topic_replication_factor == 1
    assert config.transactions.topic_replication_factor == 1
    assert config.transactions.topic_min_isr == 1
    assert [note.partition("=")[0] for note in notes] == ["num.network.threads"]


@pytest.mark.fault("outside-O7")
def test_defaults_are_those_of_kafka_2_8() -> None:
    config = load()
    assert config.log.max_message_bytes == 1_048_588
    assert config.replica_lag_time_max_ms == 30_000
    assert config.zookeeper_session_timeout_ms == 18_000
    assert config.replica_fetch_max_bytes == 1_048_576
    assert config.replica_fetch_response_max_bytes == 10_485_760
    assert config.replica_socket_timeout_ms == 30_000


def test_every_name_of_kafka_is_honoured_or_noted_or_refused_and_in_one_way_only() -> None:
    parts = (
        BrokerConfig,
        ServerTlsConfig,
        CleanerConfig,
        OffsetsConfig,
        GroupConfig,
        TransactionsConfig,
    )
    ways = [{s.name for s in declared_settings(part).values()} for part in parts]
    ways += [set(LOG_NAMES), set(ACCEPTED), set(REFUSED)]
    times = {name: sum(name in way for way in ways) for name in KAFKA_NAMES}
    assert {name for name, n in times.items() if n != 1} == set()


def test_no_name_is_taken_that_kafka_does_not_have() -> None:
    of_authorizer = {"authorizer.zookeeper.max.in.flight.requests"}  # which reads it itself
    assert set(ACCEPTED) | set(REFUSED) | set(LOG_NAMES) <= set(KAFKA_NAMES) | of_authorizer


SUPER_USERS = "User:admin; User:CN=a,O=b:c"


@pytest.mark.parametrize(
    "name",
    ["kafka.security.auth.SimpleAclAuthorizer", "kafka.security.authorizer.AclAuthorizer"],
)
def test_either_name_of_kafkas_authorizer_turns_it_on(name: str) -> None:
    config = load(authorizer__class__name=name, super__users=SUPER_USERS)
    assert config.authorization_policy == Policy(
        frozenset({Principal("User", "admin"), Principal("User", "CN=a,O=b:c")})
    )
    assert load(super__users=SUPER_USERS).authorization_policy is None


def test_another_authorizer_is_refused_by_its_name() -> None:
    error = refusal(authorizer__class__name="org.example.Authorizer")
    assert "org.example.Authorizer" in str(error)
    assert "SimpleAclAuthorizer" in error.reason


@pytest.mark.parametrize("text", ["alice", "User:", ":alice", "User:a;;User:b"])
def test_a_super_user_that_is_no_principal_is_refused(text: str) -> None:
    assert "principalType:principalName" in refusal(super__users=text).reason


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_a_name_without_effect_is_noted_with_the_reason(name: str) -> None:
    _, notes = load_broker_config({"zookeeper.connect": "zk", name: "1"})
    shown = HIDDEN if is_secret(name) else "1"
    assert notes == [f"{name}={shown}: {ACCEPTED[name]}"]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_would_leave_the_cluster_less_safe_than_the_file_says_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=f"^{name}: "):
        load_broker_config({"zookeeper.connect": "zk", name: "true"})
    load_broker_config({"zookeeper.connect": "zk", name: "false"})


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    assert "did you mean num.partitions" in refusal(num__partition="1").reason


def test_other_settings_of_a_single_listener_are_noted() -> None:
    name = "listener.name.plaintext.num.partitions"
    _, notes = load_broker_config({"zookeeper.connect": "zk", name: "5"})
    reason = "a single listener has settings of TLS, of logins and of its connections alone"
    assert notes == [f"{name}=5: {reason}"]


@pytest.mark.fault("strangers-140")
def test_a_listener_has_limits_of_connections_of_its_own_or_those_of_the_broker() -> None:
    config = load(
        listeners="CLIENT://:1,INTERNAL://:2",
        listener_security_protocol_map="CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
        max_connections="100",
        max_connection_creation_rate="20",
        **{"listener.name.client.max.connections": "7"},
    )
    assert config.connection_limits.broker == Limits(100, 20)
    assert config.connection_limits.listeners == {
        "CLIENT": Limits(7, 20),
        "INTERNAL": Limits(100, 20),
    }
    assert config.connection_limits.protected == {"INTERNAL"}
    assert load().connection_limits.protected == set()


@pytest.mark.parametrize("value", ["-1", "many"])
def test_a_limit_of_a_listener_is_a_number_of_connections(value: str) -> None:
    name = "listener.name.plaintext.max.connections"
    with pytest.raises(SettingError, match=f"Invalid value {value} for configuration {name}"):
        load(**{name: value})


def test_addresses_may_have_no_connection_only_where_others_have_some() -> None:
    load(max_connections_per_ip="0", max_connections_per_ip_overrides="10.0.0.1:5")
    with pytest.raises(SettingError, match="set to zero only if"):
        load(max_connections_per_ip="0")


def test_zookeeper_must_be_named() -> None:
    with pytest.raises(SettingError, match=r"zookeeper\.connect: is required"):
        load_broker_config({})


def test_underscores_name_the_same_settings() -> None:
    config, _ = load_broker_config({"zookeeper_connect": "zk", "log_retention_hours": "1"})
    assert (config.zookeeper_connect, config.log.retention_ms) == ("zk", 3_600_000)
    assert config.given["log.retention.hours"] == "1"


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log__retention__hours": "2"}, 7_200_000),
        ({"log__retention__minutes": "2"}, 120_000),
        ({"log__retention__ms": "2"}, 2),
        ({"log__retention__hours": "2", "log__retention__minutes": "3"}, 180_000),
        ({"log__retention__minutes": "2", "log__retention__ms": "3"}, 3),
        ({"log__retention__hours": "-1"}, -1),
    ],
    ids=str,
)
def test_of_several_units_the_finest_counts(given: dict[str, str], retention_ms: int) -> None:
    assert load(**given).log.retention_ms == retention_ms


# What Kafka 2.8.2's KafkaConfig says of these values.
OF_TOPICS_TWINS = {
    "log.segment.bytes": {"13": False, "14": True},
    "log.roll.ms": {"0": False, "1": True},
    "log.roll.hours": {"0": False, "1": True},
    "log.roll.jitter.ms": {"-1": False, "0": True},
    "log.roll.jitter.hours": {"0": True},
    "log.retention.ms": {"-5": True, "-1": True, "0": False, "1": True},
    "log.retention.minutes": {"-5": True, "-1": True, "0": False, "1": True},
    "log.retention.hours": {"-5": True, "-1": True, "0": False, "1": True},
    "log.retention.bytes": {"-5": True, "-1": True, "0": True},
    "log.index.size.max.bytes": {"3": False, "4": True},
    "log.index.interval.bytes": {"-1": False, "0": True},
    "log.flush.interval.messages": {"0": False, "1": True},
    "log.flush.interval.ms": {"0": True},
    "log.segment.delete.delay.ms": {"-1": False, "0": True},
    "min.insync.replicas": {"0": False, "1": True},
    "message.max.bytes": {"-1": False, "0": True},
    "log.cleaner.delete.retention.ms": {"0": True},
    "log.cleaner.min.compaction.lag.ms": {"0": True},
    "log.message.timestamp.difference.max.ms": {"0": True},
}


@pytest.mark.fault("broker-7")
@pytest.mark.parametrize(
    ("name", "value", "is_valid"),
    [(name, value, ok) for name, values in OF_TOPICS_TWINS.items() for value, ok in values.items()],
)
def test_values_for_all_topics_are_judged_as_kafka_judges_them(
    name: str, value: str, is_valid: bool
) -> None:
    properties = {"zookeeper.connect": "zk", name: value}
    if is_valid:
        log = load_broker_config(properties)[0].log
        assert log.retention_ms > 0 or log.retention_ms == -1
        assert log.retention_bytes >= -1
    else:
        with pytest.raises(SettingError, match=re.escape(name)):
            load_broker_config(properties)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker.id", "-2"),
        ("broker.id", "1001"),
        ("log.segment.bytes", "13"),
        ("log.roll.hours", "0"),
        ("log.retention.hours", "week"),
        ("log.retention.hours", "1_000"),
        ("num.partitions", "0"),
        ("port", "65536"),
        ("log.flush.offset.checkpoint.interval.ms", "0"),
        ("offsets.topic.num.partitions", "0"),
        ("listeners", "PLAINTEXT://h"),
        ("listeners", "PLAINTEXT://h:port"),
        ("listeners", "PLAINTEXT://h:99999"),
        ("listeners", "PLAINTEXT://h:-1"),
        ("listeners", "h:9092"),
        ("listeners", "PLAINTEXT://h:1,OTHER://h:2"),
        ("connection.failed.authentication.delay.ms", "-1"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1"),
        ("listeners", ","),
        ("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2"),
        ("inter.broker.listener.name", "OTHER"),
        ("replica.fetch.wait.max.ms", "30001"),
        ("security.inter.broker.protocol", "SSL"),
        ("max.connections.per.ip.overrides", "localhost"),
        ("max.connections.per.ip.overrides", "localhost:many"),
    ],
)
def test_a_value_that_cannot_be_is_refused_under_the_name_that_was_given(
    name: str, value: str
) -> None:
    with pytest.raises(SettingError) as refused:
        load_broker_config({"zookeeper.connect": "zk", name: value})
    assert refused.value.name == name


def test_an_advertised_listener_that_is_not_listened_on_is_refused() -> None:
    """Clients are answered by its name: under another one they would find no broker."""
    error = refusal(
        listener__security__protocol__map="IN:PLAINTEXT,OUT:PLAINTEXT",
        listeners="IN://:9092",
        advertised__listeners="OUT://h:9092",
    )
    assert (error.name, error.reason) == ("advertised.listeners", "OUT is not among listeners")


TWO = {
    "listener__security__protocol__map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT,CONTROL:PLAINTEXT",
    "listeners": "CLIENT://:1,INTERNAL://h:2,CONTROL://h:3",
    "inter__broker__listener__name": "INTERNAL",
}


def test_only_one_setting_may_name_the_listener_between_brokers() -> None:
    error = refusal(**TWO, security__inter__broker__protocol="PLAINTEXT")
    assert error.name == "inter.broker.listener.name"
    assert "security.inter.broker.protocol: set only one" in error.reason


def test_the_listener_between_brokers_has_the_name_of_its_protocol_without_another() -> None:
    error = refusal(listener__security__protocol__map="IN:PLAINTEXT", listeners="IN://:9092")
    assert (error.name, error.reason) == (
        "inter.broker.listener.name",
        "PLAINTEXT is not among the advertised listeners: IN",
    )


@pytest.mark.parametrize(
    ("listener", "why"),
    [("INTERNAL", "is the listener between brokers"), ("OTHER", "not among the advertised")],
)
def test_the_control_plane_has_a_listener_of_its_own(listener: str, why: str) -> None:
    error = refusal(**TWO, control__plane__listener__name=listener)
    assert error.name == "control.plane.listener.name"
    assert why in error.reason


def test_controllers_come_by_the_listener_of_the_control_plane() -> None:
    config = load(**TWO, control__plane__listener__name="control")
    assert (config.inter_broker_listener, config.controller_listener) == ("INTERNAL", "CONTROL")
    assert load(**TWO).controller_listener == "INTERNAL"


def test_advertised_listeners_may_share_a_port() -> None:
    """They may be the addresses of two machines in front of the broker."""
    config = load(**TWO, advertised__listeners="CLIENT://outside:9092,INTERNAL://inside:9092")
    assert [endpoint.port for endpoint in config.advertised] == [9092, 9092]


SECURED = {
    "listener__security__protocol__map": "IN:SSL,OUT:SSL,PLAINTEXT:PLAINTEXT",
    "listeners": "PLAINTEXT://:1,IN://:2,OUT://:3",
}


def test_a_listener_has_settings_of_tls_of_its_own() -> None:
    config = load(
        **SECURED,
        ssl__client__auth="required",
        ssl__protocol="TLSv1.2",
        listener__name__out__ssl__client__auth="none",
    )
    assert (config.tls_of("IN").ssl_client_auth, config.tls_of("IN").ssl_protocol) == (
        "required",
        "TLSv1.2",
    )
    assert (config.tls_of("OUT").ssl_client_auth, config.tls_of("OUT").ssl_protocol) == (
        "none",
        "TLSv1.2",
    )


def test_a_listener_with_logins_asks_for_certificates_only_by_its_own_setting() -> None:
    given = {"ssl.client.auth": "required"}
    assert load_tls_config(given, "OUT", "SASL_SSL").ssl_client_auth == "none"
    given["listener.name.out.ssl.client.auth"] = "requested"
    assert load_tls_config(given, "OUT", "SASL_SSL").ssl_client_auth == "requested"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener__name__out__ssl__client__auth", "want"),
        ("listener__name__out__ssl__principal__mapping__rules", "RULE:x"),
        ("ssl__enabled__protocols", "SSLv3"),
        ("password__encoder__cipher__algorithm", "DES"),
    ],
)
def test_a_wrong_setting_of_security_is_refused_under_its_name(name: str, value: str) -> None:
    assert refusal(**SECURED, **{name: value}).name == name.replace("__", ".")


def test_the_settings_of_a_listener_are_asked_by_its_name() -> None:
    config = load(**TWO, listener__name__client__max__connections="5")
    assert config.listener_settings("CLIENT")["max.connections"] == "5"
    assert "max.connections" not in config.listener_settings("INTERNAL")


def test_an_id_must_be_given_where_none_is_made() -> None:
    assert refusal(broker__id__generation__enable="false").name == "broker.id"
    large = load(broker__id__generation__enable="false", broker__id="5000")
    assert large.broker_id == 5000


@pytest.mark.parametrize(
    ("given", "listening", "advertised"),
    [
        ({}, ("", 9092), ("", 9092)),
        ({"listeners": "PLAINTEXT://:0"}, ("", 0), ("", 0)),
        ({"listeners": "plaintext://h:1"}, ("h", 1), ("h", 1)),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, ("0.0.0.0", 1), ("", 1)),
        ({"listeners": "PLAINTEXT://[::1]:1"}, ("::1", 1), ("::1", 1)),
        ({"host__name": "h", "port": "1"}, ("h", 1), ("h", 1)),
        ({"advertised__host__name": "a", "advertised__port": "2"}, ("", 9092), ("a", 2)),
        (
            {"listeners": "PLAINTEXT://:1", "advertised__listeners": "PLAINTEXT://a:2"},
            ("", 1),
            ("a", 2),
        ),
    ],
    ids=str,
)
def test_where_it_listens_and_what_it_tells_others(
    given: dict[str, str], listening: tuple[str, int], advertised: tuple[str, int]
) -> None:
    config = load(**given)
    assert config.endpoints == (Endpoint("PLAINTEXT", *listening),)
    assert config.advertised == (Endpoint("PLAINTEXT", *advertised),)


def test_a_listener_may_have_a_name_of_its_own() -> None:
    config = load(
        listener__security__protocol__map="INTERNAL:PLAINTEXT",
        listeners="INTERNAL://h:1",
        inter__broker__listener__name="internal",
    )
    assert config.endpoints == (Endpoint("INTERNAL", "h", 1),)
    assert config.inter_broker_listener == "INTERNAL"


def test_brokers_may_have_a_listener_among_themselves() -> None:
    config = load(
        listener__security__protocol__map="INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
        listeners="CLIENT://:1,INTERNAL://h:2",
        advertised__listeners="CLIENT://c:1,INTERNAL://h:2",
        inter__broker__listener__name="INTERNAL",
    )
    assert config.endpoints == (Endpoint("CLIENT", "", 1), Endpoint("INTERNAL", "h", 2))
    assert config.advertised == (Endpoint("CLIENT", "c", 1), Endpoint("INTERNAL", "h", 2))
    assert config.inter_broker_listener == "INTERNAL"


@pytest.mark.parametrize(
    ("given", "directories"),
    [
        ({}, ("/tmp/kafka-logs",)),
        ({"log__dir": "/a"}, ("/a",)),
        ({"log__dir": "/a", "log__dirs": "/b, /c,/b"}, ("/b", "/c")),
    ],
    ids=str,
)
def test_log_dirs_count_before_log_dir_and_each_once(
    given: dict[str, str], directories: tuple[str, ...]
) -> None:
    assert load(**given).directories == directories


@pytest.mark.parametrize(
    ("spoken", "kept", "refused"),
    [
        ("0.10.2", None, "log.message.format.version"),
        ("0.9.0.1", "0.10.0", "log.message.format.version"),
        ("0.10.2", "0.9.0", None),
        ("2.3", None, None),
        ("0.11.0", "2.3", None),
        ("none", None, "inter.broker.protocol.version"),
    ],
)
def test_logs_are_kept_in_no_newer_format_than_the_protocol_between_brokers(
    spoken: str, kept: str | None, refused: str | None
) -> None:
    given = {"zookeeper.connect": "zk:1", "inter.broker.protocol.version": spoken}
    if kept is not None:
        given["log.message.format.version"] = kept
    if refused is None:
        assert load_broker_config(given)[0].log.magic <= 2
        return
    with pytest.raises(SettingError) as error:
        load_broker_config(given)
    assert error.value.name == refused


def test_more_in_sync_than_there_are_replicas_is_allowed_and_noted() -> None:
    given = {"zookeeper.connect": "zk", "min.insync.replicas": "2"}
    _, notes = load_broker_config(given)
    assert [note.partition(", 1:")[0] for note in notes] == [
        "min.insync.replicas=2: is above default.replication.factor"
    ]
    assert load_broker_config({**given, "default.replication.factor": "2"})[1] == []


def test_preferred_leaders_are_elected_every_five_minutes_unless_that_is_switched_off() -> None:
    own = {"zookeeper.connect": "h:1"}
    assert load_broker_config(own)[0].leader_rebalance == LeaderRebalance(300_000, 10)
    off = {**own, "auto.leader.rebalance.enable": "false"}
    assert load_broker_config(off)[0].leader_rebalance is None


def test_a_broker_that_does_not_clean_says_so() -> None:
    given = {"zookeeper.connect": "zk:1", "log.cleaner.enable": "false"}
    config, notes = load_broker_config(given)
    assert not config.cleaner.enable
    assert notes == ["log.cleaner.enable=false: compacted topics grow for ever, offsets' too"]


def test_the_settings_of_the_cleaner_are_shared_by_its_threads() -> None:
    given = {
        "zookeeper.connect": "zk:1",
        "log.cleaner.threads": "4",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "log.cleaner.io.buffer.size": "1000",
        "log.cleaner.io.max.bytes.per.second": "100.5",
    }
    cleaner = load_broker_config(given)[0].cleaner
    assert (cleaner.dedupe_bytes, cleaner.io_bytes) == (2 * 2**20, 125)
    assert cleaner.bytes_per_second == 100.5 / 4
