"""A broker's config: Kafka's `server.properties`, read once at start.

Settings with an effect are declared in `BrokerConfig`, in `LogConfig` (under the broker names of
`LOG_NAMES`) and in the configs of the cleaner, of offsets and of groups. Kafka's other names are
accepted with a note or refused with a reason (`accepted_settings`), and unknown names are refused.
Some settings can change while the broker runs (`dynamic_config`).

Kafka's thread settings, in an event loop: `num.io.threads` is the number of threads for blocking
disk work (fsync, and loading, creating and closing logs). `num.network.threads` has no effect,
because one loop serves all connections. Neither has `queued.max.requests`: a connection is not read
while a request of it is held, so at most one read's worth of requests waits on each connection, and
`queued.max.request.bytes` bounds the memory of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from broker.authorization.acl_checks import parse_super_users
from broker.authorization.acl_index import Policy
from broker.controller.state import LeaderRebalance
from broker.network.connection_quotas import NO_LIMIT, ConnectionLimits, Limits
from broker.settings.accepted_settings import ACCEPTED, HARMLESS, REFUSED
from broker.settings.authorizer_settings import check_authorizer, check_super_users
from broker.settings.connection_settings import (
    LISTENER_LIMITS,
    MAX_CONNECTIONS,
    MAX_CREATION_RATE,
    MAX_PER_IP,
    PER_IP_OVERRIDES,
    limits_of_listener,
    refuse_impossible_limits,
)
from broker.settings.endpoints import (
    ANY_ADDRESS,
    EACH_TO_ITSELF,
    MAX_PORT,
    PROTOCOL_MAP,
    parse_endpoints,
    parse_protocols,
    refuse_impossible_host,
    refuse_shared_ports,
)
from broker.settings.listener_settings import (
    PREFIX,
    is_listener_setting,
    select_for_listener,
    split_listener_setting,
)
from broker.settings.password_encoder import (
    CIPHER,
    DEFAULT_KEY_FACTORY,
    KEY_FACTORIES,
    PasswordEncoder,
)
from broker.settings.sasl_config import SASL_SETTINGS, own_mechanism
from broker.settings.tls_settings import TLS_SETTINGS, load_tls_config, uses_tls
from compaction.config import CleanerConfig, refuse_impossible
from core_log.appending.message_format import check_version, magic_of
from core_log.config import BROKER_NAME, LogConfig, broker_config
from groups.coordinator.config import GroupConfig
from groups.transactions.config import TransactionsConfig
from offsets.config import OffsetsConfig
from protocol.frozen import frozen
from protocol.security_protocol import SecurityProtocol
from protocol.settings import (
    SettingError,
    between,
    convert,
    declared_settings,
    ge,
    int64,
    load,
    one_of,
    setting,
)
from protocol.special_values import MAX_LONG
from protocol.tls.config import ServerTlsConfig
from protocol.zookeeper_security import ZooKeeperSecurity
from zk.znodes import Endpoint

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000

_OF_LISTENERS = TLS_SETTINGS | set(SASL_SETTINGS) | LISTENER_LIMITS
"""The settings that a listener may have for itself."""


@frozen
class BrokerConfig(ZooKeeperSecurity):
    """The settings of the broker itself, under Kafka's names.

    `given` has all settings of the file, as they were written.
    """

    # The broker and its listeners.
    broker_id: int = setting(
        "broker.id", -1, validator=ge(-1), doc="This broker's id; -1 takes one from ZooKeeper."
    )
    broker_id_generation_enable: bool = setting("broker.id.generation.enable", True)
    reserved_broker_max_id: int = setting("reserved.broker.max.id", 1000, validator=ge(0))
    broker_rack: str | None = setting("broker.rack", None)
    listeners: str | None = setting("listeners", None, doc="NAME://host:port,…")
    advertised_listeners: str | None = setting("advertised.listeners", None)
    listener_security_protocol_map: str = setting(
        PROTOCOL_MAP, EACH_TO_ITSELF, doc="The protocol of each listener: NAME:PROTOCOL,…"
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", None, doc="The listener for connections between brokers."
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        doc="The same, for a listener with the name of its protocol.",
    )
    control_plane_listener_name: str | None = setting(
        "control.plane.listener.name",
        None,
        doc="The listener for requests of the controller, served before all others (KIP-291).",
    )
    password_encoder_secret: str | None = setting(
        "password.encoder.secret",
        None,
        doc="Encrypts the passwords among the settings that ZooKeeper keeps for this broker.",
    )
    password_encoder_old_secret: str | None = setting(
        "password.encoder.old.secret", None, doc="The secret before that, while it changes."
    )
    password_encoder_keyfactory_algorithm: str = setting(
        "password.encoder.keyfactory.algorithm",
        DEFAULT_KEY_FACTORY,
        validator=one_of(*KEY_FACTORIES),
    )
    password_encoder_cipher_algorithm: str = setting(
        "password.encoder.cipher.algorithm", CIPHER, validator=one_of(CIPHER)
    )
    password_encoder_key_length: int = setting(
        "password.encoder.key.length", 128, validator=one_of(128, 192, 256)
    )
    password_encoder_iterations: int = setting(
        "password.encoder.iterations", 4096, validator=ge(1024)
    )

    # Logins (`sasl_config` has those of single listeners).
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms", ("GSSAPI",), doc="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, …"
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        doc="The mechanism by which brokers log in at each other.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        524_288,
        validator=ge(1),
        doc="Largest frame of a client that has not logged in.",
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        0,
        doc="Longest session before a client has to log in again (KIP-368); 0: it has no end.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        100,
        validator=ge(0),
        doc="Time between a failed login and its response.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        "sasl.server.callback.handler.class",
        None,
        doc="Kafka's validator of tokens: says whether unsecured ones are accepted.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        doc="https://… or file:///… with the public keys of those who sign tokens of OAUTHBEARER.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", _HOUR_MS, validator=ge(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, validator=ge(1)
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, validator=ge(1)
    )
    sasl_oauthbearer_public_key_location: str | None = setting(
        "kgroup.sasl.oauthbearer.public.key.location",
        None,
        doc="File with one public key in PEM, in place of a set of keys.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds", 30, validator=ge(0)
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience", ()
    )
    sasl_oauthbearer_expected_issuer: str | None = setting("sasl.oauthbearer.expected.issuer", None)
    sasl_oauthbearer_scope_claim_name: str = setting("sasl.oauthbearer.scope.claim.name", "scope")
    sasl_oauthbearer_sub_claim_name: str = setting("sasl.oauthbearer.sub.claim.name", "sub")
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        "2.3-IV1",
        validator=check_version,
        doc="Largest log.message.format.version, and the format of committed offsets. Requests "
        "between brokers use the versions that both support.",
    )
    host_name: str = setting("host.name", "")
    port: int = setting("port", 9092, validator=between(0, MAX_PORT))
    advertised_host_name: str | None = setting("advertised.host.name", None)
    advertised_port: int | None = setting("advertised.port", None)

    # ZooKeeper.
    zookeeper_connect: str = setting("zookeeper.connect", doc="host:port,…[/chroot]")
    # Since 2.5 a pause of the network or of the machine may be this long (fault outside-O7).
    zookeeper_session_timeout_ms: int = setting("zookeeper.session.timeout.ms", 18_000)
    zookeeper_connection_timeout_ms: int | None = setting("zookeeper.connection.timeout.ms", None)
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl", False, doc="Whether only brokers may change what brokers create."
    )

    # Who may do what.
    authorizer_class_name: str = setting(
        "authorizer.class.name",
        "",
        validator=check_authorizer,
        doc="kafka.security.auth.SimpleAclAuthorizer or kafka.security.authorizer.AclAuthorizer: "
        "requests are allowed by ACLs in ZooKeeper. Empty: everybody may do everything.",
    )
    super_users: str = setting(
        "super.users",
        "",
        validator=check_super_users,
        doc="Principals that may do everything: User:a;User:b.",
    )
    allow_everyone_if_no_acl_found: bool = setting("allow.everyone.if.no.acl.found", False)
    authorizer_zookeeper_url: str | None = setting(
        "authorizer.zookeeper.url",
        None,
        doc="Where the ACLs are; without it in zookeeper.connect.",
    )
    authorizer_zookeeper_session_timeout_ms: int | None = setting(
        "authorizer.zookeeper.session.timeout.ms", None
    )
    authorizer_zookeeper_connection_timeout_ms: int | None = setting(
        "authorizer.zookeeper.connection.timeout.ms", None
    )

    # Directories and checkpoints. LogConfig has the settings of single logs.
    log_dir: str = setting("log.dir", "/tmp/kafka-logs")
    log_dirs: tuple[str, ...] | None = setting("log.dirs", None)
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", 300_000, validator=int64(1)
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", 2**63 - 1, validator=int64(1)
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", 60_000, validator=ge(1)
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", 5000, validator=int64(1)
    )

    # Replication.
    # Since 2.5, for the same reason (fault outside-O7).
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        30_000,
        validator=int64(1),
        doc="A follower that has not caught up for longer than this leaves the ISR.",
    )
    replica_fetch_max_bytes: int = setting("replica.fetch.max.bytes", 1024 * 1024, validator=ge(0))
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", 10 * 1024 * 1024, validator=ge(0)
    )
    replica_fetch_wait_max_ms: int = setting("replica.fetch.wait.max.ms", 500, validator=ge(0))
    replica_fetch_min_bytes: int = setting("replica.fetch.min.bytes", 1, validator=ge(0))
    replica_fetch_backoff_ms: int = setting("replica.fetch.backoff.ms", 1000, validator=ge(0))
    replica_socket_timeout_ms: int = setting("replica.socket.timeout.ms", 30_000, validator=ge(1))
    controlled_shutdown_enable: bool = setting("controlled.shutdown.enable", True)
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", 3, validator=ge(0)
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", 5000, validator=int64(0)
    )
    num_replica_fetchers: int = setting("num.replica.fetchers", 1, validator=ge(1))

    # Quotas of replication: a rate, measured over some windows.
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        MAX_LONG,
        validator=int64(0),
        doc="Most bytes per second sent to throttled followers that are not in sync (KIP-73).",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        MAX_LONG,
        validator=int64(0),
        doc="Most bytes per second that throttled followers not in sync fetch (KIP-73).",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        MAX_LONG,
        validator=int64(1),
        doc="Most bytes per second for moves between this broker's log directories (KIP-113).",
    )
    alter_log_dirs_replication_quota_window_num: int = setting(
        "alter.log.dirs.replication.quota.window.num", 11, validator=ge(1)
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        "alter.log.dirs.replication.quota.window.size.seconds", 1, validator=ge(1)
    )
    replication_quota_window_num: int = setting("replication.quota.window.num", 11, validator=ge(1))
    replication_quota_window_size_seconds: int = setting(
        "replication.quota.window.size.seconds", 1, validator=ge(1)
    )

    # Quotas of clients: rates, measured over some windows.
    quota_window_num: int = setting("quota.window.num", 11, validator=ge(1))
    quota_window_size_seconds: int = setting("quota.window.size.seconds", 1, validator=ge(1))
    controller_quota_window_num: int = setting("controller.quota.window.num", 11, validator=ge(1))
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", 1, validator=ge(1)
    )
    quota_producer_default: int = setting(
        "quota.producer.default",
        MAX_LONG,
        validator=int64(1),
        doc="Most bytes per second of a client id for which no other quota is set.",
    )
    quota_consumer_default: int = setting(
        "quota.consumer.default",
        MAX_LONG,
        validator=int64(1),
        doc="Most bytes per second that a client id fetches for which no other quota is set.",
    )

    # Fetch sessions (KIP-227).
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", 1000, validator=ge(0)
    )

    # Topics and their leaders.
    num_partitions: int = setting("num.partitions", 1, validator=ge(1))
    default_replication_factor: int = setting("default.replication.factor", 1, validator=ge(1))
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", True)
    delete_topic_enable: bool = setting("delete.topic.enable", True)
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable", True)
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", 300, validator=int64(1)
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        10,
        validator=ge(0),
        doc="Share of a broker's preferred partitions that other brokers may lead before "
        "leadership is moved back, in percent.",
    )

    # Threads, sockets and memory.
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", 1, validator=ge(1)
    )
    num_io_threads: int = setting("num.io.threads", 8, validator=ge(1))
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 104_857_600, validator=ge(1)
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        -1,
        validator=int64(-1),
        doc="Most memory for requests and unsent responses; above it, clients are not read. -1: a "
        "quarter of the machine's memory, at most 1 GiB.",
    )
    # A size that is set keeps the kernel from adapting the buffer to the connection.
    socket_send_buffer_bytes: int = setting("socket.send.buffer.bytes", -1)
    socket_receive_buffer_bytes: int = setting("socket.receive.buffer.bytes", -1)
    fetch_max_bytes: int = setting("fetch.max.bytes", 57_671_680, validator=ge(1024))
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", 600_000, validator=int64(-(2**63))
    )
    max_connections: int = setting(
        MAX_CONNECTIONS,
        NO_LIMIT,
        validator=ge(0),
        doc="Most connections of the broker, or of a listener; others wait to be accepted.",
    )
    max_connection_creation_rate: int = setting(
        MAX_CREATION_RATE,
        NO_LIMIT,
        validator=ge(0),
        doc="Most new connections a second of the broker, or of a listener; others wait.",
    )
    max_connections_per_ip: int = setting(
        MAX_PER_IP,
        NO_LIMIT,
        validator=ge(0),
        doc="Most connections of an address; those beyond are closed at once.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        PER_IP_OVERRIDES, (), doc="The same of single hosts: host:number,…"
    )

    request_timeout_ms: int = setting("request.timeout.ms", 30_000, validator=ge(1))
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms", 30_000, validator=ge(1)
    )

    event_loop_watchdog_ms: int = setting(
        "kgroup.event.loop.watchdog.ms",
        100,
        validator=ge(0),
        doc="Longest turn of the event loop before its stack is logged; 0: never. Kafka has no "
        "such setting.",
    )

    metrics_port: int = setting(
        "kgroup.metrics.port",
        0,
        validator=between(0, MAX_PORT),
        doc="Port of http://HOST:PORT/metrics, the broker's figures for Prometheus; 0: off.",
    )
    metrics_host: str | None = setting(
        "kgroup.metrics.host",
        None,
        doc="Address of that port; without it, that of the first listener.",
    )

    # The file as it is, and the parts with a class of their own.
    given: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, repr=False)
    tls: ServerTlsConfig = attrs.field(factory=ServerTlsConfig, kw_only=True)
    log: LogConfig = attrs.field(factory=LogConfig, kw_only=True)
    cleaner: CleanerConfig = attrs.field(factory=CleanerConfig, kw_only=True)
    offsets: OffsetsConfig = attrs.field(factory=OffsetsConfig, kw_only=True)
    groups: GroupConfig = attrs.field(factory=GroupConfig, kw_only=True)
    transactions: TransactionsConfig = attrs.field(factory=TransactionsConfig, kw_only=True)

    @property
    def authorization_policy(self) -> Policy | None:
        """Return the policy that decides beside ACLs; None: everybody may do everything."""
        if not self.authorizer_class_name:
            return None
        return Policy(parse_super_users(self.super_users), self.allow_everyone_if_no_acl_found)

    @property
    def replication_quota_windows(self) -> tuple[int, int]:
        """The number of windows, and the length of each in seconds."""
        return self.replication_quota_window_num, self.replication_quota_window_size_seconds

    @property
    def alter_log_dirs_quota_windows(self) -> tuple[int, int]:
        """The number of windows, and the length of each in seconds."""
        return (
            self.alter_log_dirs_replication_quota_window_num,
            self.alter_log_dirs_replication_quota_window_size_seconds,
        )

    @property
    def leader_rebalance(self) -> LeaderRebalance | None:
        """The settings of the automatic election of preferred leaders; None: there is none."""
        if not self.auto_leader_rebalance_enable:
            return None
        return LeaderRebalance(
            self.leader_imbalance_check_interval_seconds * 1000,
            self.leader_imbalance_per_broker_percentage,
        )

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories, without duplicates."""
        # log.dirs wins over log.dir, as in Kafka.
        return tuple(dict.fromkeys(self.log_dirs or (self.log_dir,)))

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses to listen on."""
        # Without listeners: the older settings' host and port.
        # An empty value is no default (fault strangers-141, was: self.listeners or None).
        listeners = self.listeners
        if listeners is None:
            listeners = f"PLAINTEXT://{self.host_name}:{self.port}"
        return parse_endpoints("listeners", listeners, self.listener_security_protocol_map)

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        """The addresses for other brokers and clients; host "" and port 0: as listened on."""
        protocols = self.listener_security_protocol_map
        if self.advertised_listeners is not None:
            return parse_endpoints("advertised.listeners", self.advertised_listeners, protocols)

        # Without advertised.listeners: as listened on, under the older settings' host and port.
        host = self.advertised_host_name
        if host:
            refuse_impossible_host("advertised.host.name", host)
        return tuple(
            attrs.evolve(
                endpoint,
                host=host or ("" if endpoint.host in ANY_ADDRESS else endpoint.host),
                port=endpoint.port if self.advertised_port is None else self.advertised_port,
            )
            for endpoint in self.endpoints
        )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for connections between brokers."""
        name = self.inter_broker_listener_name or self.security_inter_broker_protocol
        return name.upper()

    @property
    def control_plane_listener(self) -> str | None:
        """The name of the listener for requests of the controller alone; None: there is none."""
        name = self.control_plane_listener_name
        return name.upper() if name else None

    @property
    def controller_listener(self) -> str:
        """The name of the listener by which a controller reaches brokers."""
        return self.control_plane_listener or self.inter_broker_listener

    @property
    def protected_listeners(self) -> frozenset[str]:
        """The listeners for brokers, where max.connections of the broker does not hold.

        If all clients come by the same listener there are none.
        """
        if len(self.endpoints) == 1:
            return frozenset()
        return frozenset({self.inter_broker_listener, self.controller_listener})

    @property
    def connection_limits(self) -> ConnectionLimits:
        """The limits of connections, of the broker and of each listener."""
        broker = Limits(self.max_connections, self.max_connection_creation_rate)
        return ConnectionLimits(
            broker,
            {
                endpoint.listener: limits_of_listener(self.given, endpoint.listener, broker)
                for endpoint in self.endpoints
            },
            self.max_connections_per_ip,
            self.max_connections_per_ip_overrides,
            # Others come and go while the broker runs (fault strangers-140, was: frozenset()).
            protected=self.protected_listeners,
        )

    def protocol_of(self, listener: str) -> str:
        """Return the security protocol of a listener. Raises KeyError if the map has none."""
        return parse_protocols(self.listener_security_protocol_map)[listener]

    def tls_of(self, listener: str) -> ServerTlsConfig:
        """Return the settings of TLS of a listener. Raises SettingError."""
        return load_tls_config(self.given, listener, self.protocol_of(listener))

    @property
    def password_encoder(self) -> PasswordEncoder:
        """Return the encoder that encrypts passwords for ZooKeeper."""
        secrets = (self.password_encoder_secret, self.password_encoder_old_secret)
        return PasswordEncoder(
            tuple(secret for secret in secrets if secret),
            self.password_encoder_iterations,
            self.password_encoder_key_length,
            self.password_encoder_keyfactory_algorithm,
        )

    def listener_settings(self, listener: str) -> dict[str, str]:
        """Return the settings as they apply to one listener (`listener_settings`)."""
        return select_for_listener(self.given, listener)


# Brokers have these in hours and minutes too, topics in milliseconds alone.
_OTHER_UNITS: dict[str, tuple[str, int]] = {
    "log.roll.hours": ("segment.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("segment.jitter.ms", _HOUR_MS),
    "log.retention.minutes": ("retention.ms", _MINUTE_MS),
    "log.retention.hours": ("retention.ms", _HOUR_MS),
}
LOG_NAMES: dict[str, tuple[str, int]] = {
    broker_name: (topic_name, 1) for topic_name, broker_name in BROKER_NAME.items()
} | _OTHER_UNITS
"""Broker name → (topic name, factor). Of several names for one setting, the first one here wins."""


def load_broker_config(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Read `server.properties`; return the config and notes.

    The notes name settings without effect, and legal but suspicious combinations. Raises
    SettingError, which names the setting, for unknown names, bad values and impossible pairs.
    """
    # Sort the settings by the config that declares them.
    parts: dict[type, dict[str, str]] = {
        ServerTlsConfig: {},
        CleanerConfig: {},
        OffsetsConfig: {},
        GroupConfig: {},
        TransactionsConfig: {},
    }
    log_values: dict[str, str] = {}
    own: dict[str, str] = {}
    given = {_dotted(name): value for name, value in properties.items()}
    for dotted, value in given.items():
        owner = next((part for part in parts if dotted in _names(part)), None)
        if dotted in LOG_NAMES:
            log_values[dotted] = value
        elif owner is not None:
            parts[owner][dotted] = value
        elif is_listener_setting(dotted, _OF_LISTENERS):
            continue  # `given` has it: it counts for its listener alone
        elif dotted in REFUSED:
            # Refused only where it asks for something.
            if value.strip().lower() not in HARMLESS:
                raise SettingError(dotted, REFUSED[dotted])
        else:
            own[dotted] = value

    # Load each part: this judges every setting by itself.
    config, notes = load(BrokerConfig, own, accepted=_accepted(own))
    config = attrs.evolve(
        config,
        given=given,
        tls=load(ServerTlsConfig, parts[ServerTlsConfig])[0],
        log=_log_config(log_values),
        cleaner=load(CleanerConfig, parts[CleanerConfig])[0],
        offsets=load(OffsetsConfig, parts[OffsetsConfig])[0],
        groups=load(GroupConfig, parts[GroupConfig])[0],
        transactions=load(TransactionsConfig, parts[TransactionsConfig])[0],
    )

    # Then judge them together.
    _refuse_impossible(config)
    return config, notes + _find_suspicious(config)


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _names(cls: type) -> set[str]:
    return {setting.name for setting in declared_settings(cls).values()}


def _accepted(own: Mapping[str, str]) -> dict[str, str]:
    # KIP-103: a prefix makes any setting one of a single listener.
    prefixed = {
        name: "a single listener has settings of TLS, of logins and of its connections alone"
        for name in own
        if name.startswith(PREFIX)
    }
    return ACCEPTED | prefixed


def _log_config(properties: Mapping[str, str]) -> LogConfig:
    # In the order of LOG_NAMES, so that the finest unit wins.
    topic_values: dict[str, str] = {}
    broker_names: dict[str, str] = {}
    for name, (topic_name, factor) in LOG_NAMES.items():
        if name not in properties or topic_name in topic_values:
            continue

        # Convert hours and minutes; any negative number stands for "unlimited".
        value = properties[name]
        if factor != 1:
            number = convert(name, value, int)
            value = str(number * factor if number >= 0 else -1)
        topic_values[topic_name] = value
        broker_names[topic_name] = name

    try:
        return broker_config(LogConfig(), topic_values)
    except SettingError as error:
        # Under the name that stands in the file.
        raise error.with_name(broker_names.get(error.name, error.name)) from error


def _find_suspicious(config: BrokerConfig) -> list[str]:
    """Return a note on each legal combination that is hardly meant."""
    notes = []
    if not config.cleaner.enable:
        notes.append("log.cleaner.enable=false: compacted topics grow for ever, offsets' too")
    listeners = {endpoint.listener for endpoint in config.endpoints}
    notes += [
        f"{name}: there is no listener {listener}"
        for name in config.given
        if is_listener_setting(name, _OF_LISTENERS)
        and (listener := split_listener_setting(name)[0]) not in listeners
    ]

    least = config.log.min_insync_replicas
    factors = {
        "default.replication.factor": config.default_replication_factor,
        "offsets.topic.replication.factor": config.offsets.topic_replication_factor,
    }
    return notes + [
        f"min.insync.replicas={least}: is above {name}, {factor}: a topic created with that many"
        " replicas takes no record with acks=all, and no commit"
        for name, factor in factors.items()
        if factor < least
    ]


def _refuse_impossible(config: BrokerConfig) -> None:
    refuse_impossible(config.cleaner)
    _refuse_impossible_sizes(config)
    refuse_impossible_addresses(config)
    _refuse_impossible_ids(config)
    _refuse_impossible_logins(config)

    # This reads the limits of all listeners.
    limits = config.connection_limits
    refuse_impossible_limits(limits.per_ip, limits.overrides)


def _refuse_impossible_sizes(config: BrokerConfig) -> None:
    # A fetch may wait no longer than its socket, nor than a follower may lag.
    for name, bound in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        if config.replica_fetch_wait_max_ms > bound:
            raise SettingError(
                "replica.fetch.wait.max.ms",
                f"{config.replica_fetch_wait_max_ms} is above {name}, {bound}",
            )

    # A request above the bound of all memory would never be read.
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise SettingError(
            "queued.max.request.bytes",
            f"{config.queued_max_request_bytes} is below socket.request.max.bytes, "
            f"{config.socket_request_max_bytes}",
        )

    # Followers keep the bytes of their leader, so all must know the format.
    if magic_of(config.inter_broker_protocol_version) < config.log.magic:
        raise SettingError(
            "log.message.format.version",
            f"{config.log.message_format_version} is newer than inter.broker.protocol.version, "
            f"{config.inter_broker_protocol_version}: other brokers could not read the logs",
        )


def refuse_impossible_addresses(config: BrokerConfig) -> None:
    """Raise SettingError for listeners that cannot be bound, found, or reached by brokers."""
    refuse_shared_ports("listeners", config.endpoints)

    # Settings of TLS that no listener can have.
    for endpoint in config.endpoints:
        if uses_tls(endpoint.security_protocol):
            config.tls_of(endpoint.listener)

    # Clients are sent to advertised listeners: each must be served.
    listeners = {endpoint.listener for endpoint in config.endpoints}
    advertised = {endpoint.listener for endpoint in config.advertised}
    if not advertised <= listeners:
        unknown = ", ".join(sorted(advertised - listeners))
        raise SettingError("advertised.listeners", f"{unknown} is not among listeners")

    # Brokers reach each other by one of these.
    _refuse_impossible_inter_broker(config, advertised)
    control_plane = config.control_plane_listener
    if control_plane is not None:
        _refuse_unadvertised("control.plane.listener.name", control_plane, advertised)
        if control_plane == config.inter_broker_listener:
            raise SettingError(
                "control.plane.listener.name",
                f"{control_plane} is the listener between brokers already",
            )

    # An address to bind is not one to connect to.
    if any(endpoint.host in ANY_ADDRESS for endpoint in config.advertised):
        raise SettingError("advertised.listeners", "0.0.0.0 cannot be connected to")


def _refuse_impossible_inter_broker(config: BrokerConfig, advertised: Collection[str]) -> None:
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if config.inter_broker_listener_name is None:
        if config.security_inter_broker_protocol.upper() not in SecurityProtocol.__members__:
            raise SettingError(by_protocol, "is not a security protocol")
        # The default is what the file leaves out.
        name = by_protocol if by_protocol in config.given else by_name
        _refuse_unadvertised(name, config.inter_broker_listener, advertised)
        return

    # Either names the listener, so both could contradict each other.
    if by_protocol in config.given:
        raise SettingError(by_name, f"is given beside {by_protocol}: set only one of them")
    _refuse_unadvertised(by_name, config.inter_broker_listener, advertised)


def _refuse_unadvertised(name: str, listener: str, advertised: Collection[str]) -> None:
    if listener not in advertised:
        names = ", ".join(sorted(advertised))
        raise SettingError(name, f"{listener} is not among the advertised listeners: {names}")


def _refuse_impossible_logins(config: BrokerConfig) -> None:
    # This reads those of all listeners.
    for listener in (config.inter_broker_listener, config.controller_listener):
        own_mechanism(config, listener)

    # A connection that waits for its refusal must not be closed as idle.
    delay_ms = config.connection_failed_authentication_delay_ms
    if 0 <= config.connections_max_idle_ms <= delay_ms:
        raise SettingError(
            "connection.failed.authentication.delay.ms",
            f"{delay_ms} is not below connections.max.idle.ms, {config.connections_max_idle_ms}",
        )


def _refuse_impossible_ids(config: BrokerConfig) -> None:
    if config.broker_id < 0 and not config.broker_id_generation_enable:
        raise SettingError("broker.id", "is required when broker.id.generation.enable is false")

    # Ids above are generated: another broker could get the same.
    if config.broker_id > config.reserved_broker_max_id and config.broker_id_generation_enable:
        raise SettingError(
            "broker.id", f"is above reserved.broker.max.id ({config.reserved_broker_max_id})"
        )
