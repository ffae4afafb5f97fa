"""A broker's settings: Kafka's `server.properties`, read once at start.

What the parts of the broker honour is declared in `BrokerConfig`, in `LogConfig` (under the broker
names of `LOG_NAMES`) and in the offsets and group settings. Every other name of Kafka's is
accepted with a note or refused with a reason (`accepted_settings`), and unknown ones are refused.

In an event loop, Kafka's thread settings mean: `num.io.threads` is the number of threads that do
blocking disk work (fsync, loading, recovery). `num.network.threads` has nothing to number: one
loop serves all connections. Nor has `queued.max.requests` anything to bound: a connection is read
no further while a request of it is held, so at most one read's worth of requests waits on each.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from broker.accepted_settings import ACCEPTED, HARMLESS, REFUSED
from core_log.config import BROKER_NAME, LogConfig
from core_log.message_format import known_version, magic_of
from groups.coordinator.config import GroupConfig
from offsets.config import OffsetsConfig
from protocol.settings import SettingError, between, declared, ge, load, setting

MAX_PORT = 65535
_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@attrs.frozen
class Endpoint:
    """A listener: name, host ("" binds all addresses) and port (0: any free one)."""

    listener: str
    host: str
    port: int


@attrs.frozen
class BrokerConfig:
    """The settings of the broker itself, under Kafka's names."""

    broker_id: int = setting(
        "broker.id", -1, validator=ge(-1), doc="This broker's id; -1 takes one from ZooKeeper."
    )
    broker_id_generation_enable: bool = setting("broker.id.generation.enable", True)
    reserved_broker_max_id: int = setting("reserved.broker.max.id", 1000, validator=ge(0))
    listeners: str | None = setting("listeners", None, doc="PLAINTEXT://host:port")
    advertised_listeners: str | None = setting("advertised.listeners", None)
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"
    )
    inter_broker_listener_name: str | None = setting("inter.broker.listener.name", None)
    security_inter_broker_protocol: str = setting("security.inter.broker.protocol", "PLAINTEXT")
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        "2.3-IV1",
        validator=known_version,
        doc="Bounds log.message.format.version; requests have the versions that all brokers speak.",
    )
    host_name: str = setting("host.name", "")
    port: int = setting("port", 9092, validator=between(0, MAX_PORT))
    advertised_host_name: str | None = setting("advertised.host.name", None)
    advertised_port: int | None = setting("advertised.port", None)

    zookeeper_connect: str = setting("zookeeper.connect", doc="host:port,…[/chroot]")
    zookeeper_session_timeout_ms: int = setting("zookeeper.session.timeout.ms", 6000)
    zookeeper_connection_timeout_ms: int | None = setting("zookeeper.connection.timeout.ms", None)

    log_dir: str = setting("log.dir", "/tmp/kafka-logs")
    log_dirs: tuple[str, ...] | None = setting("log.dirs", None)
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", 300_000, validator=ge(1)
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", 2**63 - 1, validator=ge(1)
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", 60_000, validator=ge(1)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", 60_000, validator=ge(1)
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", 5000, validator=ge(1)
    )

    num_partitions: int = setting("num.partitions", 1, validator=ge(1))
    default_replication_factor: int = setting("default.replication.factor", 1, validator=ge(1))
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", True)
    delete_topic_enable: bool = setting("delete.topic.enable", True)

    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", 1, validator=ge(1)
    )
    num_io_threads: int = setting("num.io.threads", 8, validator=ge(1))
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 104_857_600, validator=ge(1)
    )
    socket_send_buffer_bytes: int = setting("socket.send.buffer.bytes", 102_400)
    socket_receive_buffer_bytes: int = setting("socket.receive.buffer.bytes", 102_400)
    fetch_max_bytes: int = setting("fetch.max.bytes", 57_671_680, validator=ge(1024))
    connections_max_idle_ms: int = setting("connections.max.idle.ms", 600_000)
    max_connections: int = setting("max.connections", 2**31 - 1, validator=ge(0))
    max_connections_per_ip: int = setting("max.connections.per.ip", 2**31 - 1, validator=ge(0))
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides", ()
    )
    request_timeout_ms: int = setting("request.timeout.ms", 30_000, validator=ge(1))
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms", 30_000, validator=ge(1)
    )

    given: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    log: LogConfig = attrs.field(factory=LogConfig, kw_only=True)
    offsets: OffsetsConfig = attrs.field(factory=OffsetsConfig, kw_only=True)
    groups: GroupConfig = attrs.field(factory=GroupConfig, kw_only=True)

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories, each named once."""
        return tuple(dict.fromkeys(self.log_dirs or (self.log_dir,)))

    @property
    def endpoint(self) -> Endpoint:
        """Where to listen."""
        if self.listeners:
            return parse_endpoint("listeners", self.listeners, self.listener_security_protocol_map)
        return Endpoint("PLAINTEXT", self.host_name, self.port)

    @property
    def advertised(self) -> Endpoint:
        """What other brokers and clients are told; host "" and port 0 mean: as listened on."""
        listening = self.endpoint
        if self.advertised_listeners:
            return parse_endpoint(
                "advertised.listeners",
                self.advertised_listeners,
                self.listener_security_protocol_map,
            )
        host = self.advertised_host_name or listening.host
        port = listening.port if self.advertised_port is None else self.advertised_port
        return Endpoint(listening.listener, "" if host in ("0.0.0.0", "::") else host, port)


_OTHER_UNITS: dict[str, tuple[str, int]] = {
    "log.roll.hours": ("segment.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("segment.jitter.ms", _HOUR_MS),
    "log.retention.minutes": ("retention.ms", _MINUTE_MS),
    "log.retention.hours": ("retention.ms", _HOUR_MS),
}
LOG_NAMES: dict[str, tuple[str, int]] = {
    broker_name: (topic_name, 1) for topic_name, broker_name in BROKER_NAME.items()
} | _OTHER_UNITS
"""Broker name → (topic name, factor). Of several names for one, the first that is given wins."""


def load_broker_config(properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Read `server.properties`; return the settings and a note for each name without effect.

    Raises SettingError naming the setting, for unknown ones, bad values and impossible pairs.
    """
    parts: dict[type, dict[str, str]] = {OffsetsConfig: {}, GroupConfig: {}}
    log_values: dict[str, str] = {}
    own: dict[str, str] = {}
    given = {_dotted(name): value for name, value in properties.items()}
    for dotted, value in given.items():
        owner = next((c for c in parts if dotted in _names(c)), None)
        if dotted in LOG_NAMES:
            log_values[dotted] = value
        elif owner is not None:
            parts[owner][dotted] = value
        elif dotted in REFUSED:
            if value.strip().lower() not in HARMLESS:
                raise SettingError(dotted, REFUSED[dotted])
        else:
            own[dotted] = value
    config, notes = load(BrokerConfig, own, accepted=_accepted(own))
    config = attrs.evolve(
        config,
        given=given,
        log=_log_config(log_values),
        offsets=load(OffsetsConfig, parts[OffsetsConfig])[0],
        groups=load(GroupConfig, parts[GroupConfig])[0],
    )
    _refuse_impossible(config)
    return config, notes


def parse_endpoint(name: str, text: str, protocol_map: str) -> Endpoint:
    """Read `LISTENER://host:port`; more than one, or one that is not plaintext, is refused."""
    if "," in text.strip(","):
        raise SettingError(name, "more than one listener is not served yet")
    listener, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise SettingError(name, f"{text!r} is not of the form LISTENER://host:port")
    listener = listener.upper()
    protocols = dict(pair.strip().split(":", 1) for pair in protocol_map.split(",") if ":" in pair)
    if protocols.get(listener, listener).strip().upper() != "PLAINTEXT":
        raise SettingError(name, f"listener {listener} is not PLAINTEXT, the only protocol served")
    return Endpoint(listener, host.strip("[]"), int(port))


def _dotted(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _names(cls: type) -> set[str]:
    return {s.name for s in declared(cls).values()}


def _accepted(own: Mapping[str, str]) -> dict[str, str]:
    prefixed = {
        name: "settings of a single listener are not there yet"
        for name in own
        if name.startswith("listener.name.")
    }
    return ACCEPTED | prefixed


def _log_config(given: Mapping[str, str]) -> LogConfig:
    topic_values: dict[str, str] = {}
    given_as: dict[str, str] = {}
    for name, (topic_name, factor) in LOG_NAMES.items():
        if name not in given or topic_name in topic_values:
            continue
        value = given[name]
        if factor != 1:
            try:
                value = str(int(value) * factor if int(value) >= 0 else -1)
            except ValueError as error:
                raise SettingError(name, f"{value!r} is not an integer") from error
        topic_values[topic_name], given_as[topic_name] = value, name
    try:
        return LogConfig.from_properties(LogConfig(), topic_values)
    except SettingError as error:
        raise SettingError(given_as.get(error.name, error.name), error.reason) from error


def _refuse_impossible(config: BrokerConfig) -> None:
    if magic_of(config.inter_broker_protocol_version) < config.log.magic:
        raise SettingError(
            "log.message.format.version",
            f"{config.log.message_format_version} is newer than inter.broker.protocol.version, "
            f"{config.inter_broker_protocol_version}: other brokers could not read the logs",
        )
    listener = config.endpoint.listener
    if config.advertised.listener != listener:
        raise SettingError(
            "advertised.listeners", f"{config.advertised.listener} is not among listeners"
        )
    if (config.inter_broker_listener_name or listener).upper() != listener:
        raise SettingError(
            "inter.broker.listener.name",
            f"{config.inter_broker_listener_name} is not among listeners",
        )
    if config.security_inter_broker_protocol.upper() != "PLAINTEXT":
        raise SettingError("security.inter.broker.protocol", "only PLAINTEXT is served")
    if config.advertised.host in ("0.0.0.0", "::"):
        raise SettingError("advertised.listeners", "0.0.0.0 cannot be connected to")
    if config.broker_id < 0 and not config.broker_id_generation_enable:
        raise SettingError("broker.id", "is required when broker.id.generation.enable is false")
    if config.broker_id > config.reserved_broker_max_id and config.broker_id_generation_enable:
        raise SettingError(
            "broker.id", f"is above reserved.broker.max.id ({config.reserved_broker_max_id})"
        )
    for pair in config.max_connections_per_ip_overrides:
        if not pair.rpartition(":")[2].isdigit():
            raise SettingError("max.connections.per.ip.overrides", f"{pair!r} is not host:number")
