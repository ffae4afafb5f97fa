"""Settings of the clients, under Kafka's names with the defaults of its 2.x Java clients."""

from collections.abc import Mapping
from typing import Any

import attrs

from clients.transport.broker_versions import known_broker_version
from protocol.settings import Check, SettingError, ge, load, one_of, setting

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Batches of a producer that a broker remembers."""

IGNORED: Mapping[str, str] = {
    "api.version.fallback.ms": "broker.version.fallback holds until the next connection",
    "api.version.request.timeout.ms": "socket.connection.setup.timeout.ms bounds it",
    "auto.include.jmx.reporter": "there is no JMX here",
    "client.dns.lookup": "every address of a name is tried",
    "connections.max.idle.ms": "connections are kept while their owner lives",
    "metadata.max.idle.ms": "topics are remembered while the client lives",
    "metric.reporters": "there is no JMX here",
    "metrics.num.samples": "there is no JMX here",
    "metrics.recording.level": "there is no JMX here",
    "metrics.sample.window.ms": "there is no JMX here",
}
"""Kafka's settings that a client accepts and has no use for, and why."""


UNASKED_BROKER_VERSION = "0.10.0"
"""What brokers are taken for that are not asked, as librdkafka takes them."""


def unsupported(*harmless: Any, reason: str) -> Check:
    """Refuse every value of a setting but those that ask for nothing."""
    return lambda value: None if value in harmless else reason


@attrs.frozen(kw_only=True)
class BrokerVersionConfig:
    """How a client knows what its brokers speak; part of every client's settings."""

    api_version_request: bool = setting(
        "api.version.request", True, doc="Ask each broker what it speaks"
    )
    broker_version_fallback: str = setting(
        "broker.version.fallback",
        "",
        validator=known_broker_version,
        doc="Release of brokers that are not asked, or are too old to answer (before 0.10)",
    )

    @property
    def broker_version(self) -> str:
        """The release to take a broker for that does not say; "" if it must say."""
        if self.broker_version_fallback or self.api_version_request:
            return self.broker_version_fallback
        return UNASKED_BROKER_VERSION


@attrs.frozen(kw_only=True)
class ClusterConfig(BrokerVersionConfig):
    """How to find brokers and talk to them; part of every client's settings."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        (),
        doc="host:port[,host:port...] to ask for the cluster",
        aliases=("metadata.broker.list",),
    )
    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        doc="host:port[,...][/chroot] whose brokers are asked if those above do not answer",
        aliases=("zk.connect",),
    )
    client_id: str = setting("client.id", "kgroup", doc="Name told to brokers with each request")
    request_timeout_ms: int = setting(
        "request.timeout.ms", 30_000, validator=ge(0), doc="Time for one response (KIP-19)"
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60_000, validator=ge(0), doc="Time for a call with its retries"
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", 100, validator=ge(0), doc="Pause before trying again"
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", 50, validator=ge(0), doc="Pause before connecting again, at first"
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms", 1_000, validator=ge(0), doc="... doubling up to this"
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", 10_000, validator=ge(1), doc="Time to connect"
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", 300_000, validator=ge(0), doc="Metadata older than this is renewed"
    )
    security_protocol: str = setting(
        "security.protocol", "PLAINTEXT", validator=one_of("PLAINTEXT"), doc="TLS is not spoken yet"
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes", -1, validator=ge(-1), doc="SO_SNDBUF; -1 is the system's choice"
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", -1, validator=ge(-1), doc="SO_RCVBUF; -1 is the system's choice"
    )


@attrs.frozen(kw_only=True)
class ProducerConfig(ClusterConfig):
    """Settings of the producer; it is a cluster's client, so it has those of one."""

    acks: str = setting(
        "acks",
        "1",
        validator=one_of("all", "-1", "0", "1"),
        doc="Who must have a record before it counts: all in-sync replicas, the leader, nobody",
    )
    retries: int = setting("retries", 2**31 - 1, validator=ge(0), doc="Attempts after the first")
    batch_size: int = setting(
        "batch.size", 16_384, validator=ge(0), doc="Bytes of a batch; 0 is a record a batch"
    )
    linger_ms: int = setting(
        "linger.ms", 0, validator=ge(0), doc="How long a batch may wait for more records"
    )
    buffer_memory: int = setting(
        "buffer.memory", 33_554_432, validator=ge(1), doc="Bytes of records not yet acknowledged"
    )
    max_block_ms: int = setting(
        "max.block.ms", 60_000, validator=ge(0), doc="How long send waits for metadata and room"
    )
    max_request_size: int = setting(
        "max.request.size", 1_048_576, validator=ge(1), doc="Bytes of a record, and of a request"
    )
    max_in_flight: int = setting(
        "max.in.flight.requests.per.connection", 5, validator=ge(1), doc="Requests unanswered"
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms", 120_000, validator=ge(0), doc="Bound on delivery (KIP-91)"
    )
    compression_type: str = setting(
        "compression.type",
        "none",
        validator=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of batches",
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), doc="Topics to compress; all if empty"
    )
    serializer: Any = setting(
        "serializer.class",
        None,
        doc="Values, and keys too, to bytes, where the next two do not say otherwise",
    )
    key_serializer: Any = setting(
        "key.serializer",
        None,
        doc="Key to bytes: a callable, an Encoder with to_message, module:Class, or Kafka's name",
        aliases=("key.serializer.class",),
    )
    value_serializer: Any = setting("value.serializer", None, doc="As for keys")
    partitioner: Any = setting(
        "partitioner.class",
        None,
        doc="A Partitioner of keys, or a callable of (key bytes, partitions); for Kafka's rule",
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        False,
        doc="Number records, so that no retry is written twice (KIP-98); makes acks all",
    )
    transactional_id: str | None = setting(
        "transactional.id", None, validator=unsupported("", reason="is not offered"), doc="Unset"
    )
    interceptor_classes: tuple[str, ...] = setting(
        "interceptor.classes", (), validator=unsupported((), reason="is not offered"), doc="Unset"
    )

    @property
    def required_acks(self) -> int:
        """`acks` as the wire has it."""
        return -1 if self.acks == "all" else int(self.acks)


def load_producer_config(settings: Mapping[str, Any]) -> tuple[ProducerConfig, list[str]]:
    """Read a producer's settings, and check what only makes sense together (KIP-91).

    A `delivery.timeout.ms` that leaves no time for lingering and one request is refused if it was
    set, raised if it was not; likewise `acks`, with idempotence.
    """
    config, notes = load(ProducerConfig, settings, accepted=IGNORED)
    if config.enable_idempotence:
        config = _idempotent(config, acks_set="acks" in settings)
    least_ms = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms >= least_ms:
        return config, notes
    if {"delivery.timeout.ms", "delivery_timeout_ms"} & set(settings):
        raise SettingError(
            "delivery.timeout.ms",
            f"must be at least linger.ms + request.timeout.ms, {least_ms}",
        )
    return attrs.evolve(config, delivery_timeout_ms=least_ms), notes


def _idempotent(config: ProducerConfig, *, acks_set: bool) -> ProducerConfig:
    """Hold the settings to what numbered records need: an answer from all, and another try."""
    if acks_set and config.required_acks != -1:
        raise SettingError("acks", f"must be all with enable.idempotence, not {config.acks}")
    if config.retries == 0:
        raise SettingError("retries", "must be above 0 with enable.idempotence")
    if config.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise SettingError(
            "max.in.flight.requests.per.connection",
            f"must be at most {MAX_IN_FLIGHT_IDEMPOTENT} with enable.idempotence, "
            f"not {config.max_in_flight}",
        )
    return attrs.evolve(config, acks="all")
