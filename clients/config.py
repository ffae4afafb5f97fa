"""Settings of the clients, under Kafka's names and with the defaults of its 2.x Java clients."""

from collections.abc import Mapping
from typing import Any

import attrs

from clients.security import SecurityConfig
from clients.transport.broker_versions import known_broker_version
from protocol.frozen import frozen
from protocol.settings import Check, SettingError, ge, load, one_of, setting

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Number of a producer's last batches that a broker remembers."""

IGNORED: Mapping[str, str] = {
    "api.version.fallback.ms": "broker.version.fallback is used until the next connection",
    "api.version.request.timeout.ms": "socket.connection.setup.timeout.ms limits it",
    "auto.include.jmx.reporter": "there is no JMX here",
    "client.dns.lookup": "all addresses of a name are tried",
    "connections.max.idle.ms": "connections are kept while their client lives",
    "metadata.max.idle.ms": "topics are remembered while the client lives",
    "metric.reporters": "there is no JMX here",
    "metrics.num.samples": "there is no JMX here",
    "metrics.recording.level": "there is no JMX here",
    "metrics.sample.window.ms": "there is no JMX here",
}
"""Kafka's settings that clients accept without effect, with the reason."""


UNASKED_BROKER_VERSION = "0.10.0"
"""Release that librdkafka, and we, assume for brokers that are not asked."""


def unsupported(*harmless: Any, reason: str) -> Check:
    """Refuse all values of a setting, except those that ask for nothing."""
    return lambda value: None if value in harmless else reason


@frozen(kw_only=True)
class BrokerVersionConfig(SecurityConfig):
    """Settings by which a client learns the versions of its brokers; all clients have them."""

    api_version_request: bool = setting(
        "api.version.request", True, doc="Ask brokers for their API versions"
    )
    broker_version_fallback: str = setting(
        "broker.version.fallback",
        "",
        validator=known_broker_version,
        doc="Release of brokers that are not asked, or that cannot say it (before 0.10)",
    )

    @property
    def broker_version(self) -> str:
        """Release to assume for a broker that does not say it; "" if it must."""
        if self.broker_version_fallback or self.api_version_request:
            return self.broker_version_fallback
        return UNASKED_BROKER_VERSION


@frozen(kw_only=True)
class ClusterConfig(BrokerVersionConfig):
    """Settings for finding and using brokers; all clients have them."""

    # ---- brokers, and our name to them
    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        (),
        doc="Brokers to connect to first: host:port[,host:port...]",
        aliases=("metadata.broker.list",),
    )
    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        None,
        doc="host:port[,...][/chroot] whose registered brokers are used if no other responds",
        aliases=("zk.connect",),
    )
    client_id: str = setting("client.id", "kgroup", doc="Name for brokers' logs")

    # ---- times of requests and retries
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        validator=ge(0),
        doc="Longest wait for one response (KIP-19)",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        60_000,
        validator=ge(0),
        doc="Longest time for a call with its retries",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", 100, validator=ge(0), doc="Pause before a retry"
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", 50, validator=ge(0), doc="Pause before the first reconnect"
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        1_000,
        validator=ge(0),
        doc="Longest pause; it doubles with each failure",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", 10_000, validator=ge(1), doc="Longest time to connect"
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        300_000,
        validator=ge(0),
        doc="Age at which metadata is read again",
    )

    # ---- connections
    send_buffer_bytes: int = setting(
        "send.buffer.bytes", -1, validator=ge(-1), doc="SO_SNDBUF; -1: the system's default"
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", -1, validator=ge(-1), doc="SO_RCVBUF; -1: the system's default"
    )


@frozen(kw_only=True)
class ProducerConfig(ClusterConfig):
    """Settings of the producer, which include those of a cluster's client."""

    # ---- when a record counts as sent
    acks: str = setting(
        "acks",
        "1",
        validator=one_of("all", "-1", "0", "1"),
        doc="Acknowledge when all in-sync replicas have a record (all), the leader (1), nobody (0)",
    )
    retries: int = setting(
        "retries", 2**31 - 1, validator=ge(0), doc="Attempts after the first one"
    )

    # ---- batches and memory
    batch_size: int = setting(
        "batch.size", 16_384, validator=ge(0), doc="Bytes of a batch; 0: one record per batch"
    )
    linger_ms: int = setting(
        "linger.ms", 0, validator=ge(0), doc="Longest wait of a batch for more records"
    )
    buffer_memory: int = setting(
        "buffer.memory",
        33_554_432,
        validator=ge(1),
        doc="Most bytes of records sent or buffered, not acknowledged",
    )
    max_block_ms: int = setting(
        "max.block.ms",
        60_000,
        validator=ge(0),
        doc="Longest wait of send for metadata and room",
    )
    max_request_size: int = setting(
        "max.request.size",
        1_048_576,
        validator=ge(1),
        doc="Most bytes of a record, and of a request",
    )
    max_in_flight: int = setting(
        "max.in.flight.requests.per.connection",
        5,
        validator=ge(1),
        doc="Most requests in flight",
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        120_000,
        validator=ge(0),
        doc="Longest time to deliver a record (KIP-91)",
    )

    # ---- bytes and partitions
    compression_type: str = setting(
        "compression.type",
        "none",
        validator=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of batches",
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), doc="Topics whose records are compressed; all if empty"
    )
    serializer: Any = setting(
        "serializer.class",
        None,
        doc="Encodes keys and values, where the next two settings are not given",
    )
    key_serializer: Any = setting(
        "key.serializer",
        None,
        doc="Encodes keys: callable, Encoder with to_message, module:Class or Kafka's class",
        aliases=("key.serializer.class",),
    )
    value_serializer: Any = setting("value.serializer", None, doc="Encodes values, as for keys")
    partitioner: Any = setting(
        "partitioner.class",
        None,
        doc="Chooses partitions: Partitioner, or callable of (key bytes, partitions)",
    )

    # ---- idempotence and transactions, and what is not supported
    enable_idempotence: bool = setting(
        "enable.idempotence",
        False,
        doc="Number records, so that no retry is written twice (KIP-98); sets acks to all",
    )
    transactional_id: str | None = setting(
        "transactional.id",
        None,
        validator=lambda name: None if name else "must not be empty",
        doc="Name of a producer with transactions, one producer at a time; sets enable.idempotence",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        60_000,
        validator=ge(1),
        doc="Longest time for a transaction, after which its coordinator aborts it",
    )
    interceptor_classes: tuple[str, ...] = setting(
        "interceptor.classes",
        (),
        validator=unsupported((), reason="is not supported"),
        doc="Not supported",
    )

    @property
    def required_acks(self) -> int:
        """`acks` as a number of the protocol."""
        return -1 if self.acks == "all" else int(self.acks)


def load_producer_config(settings: Mapping[str, Any]) -> tuple[ProducerConfig, list[str]]:
    """Load a producer's settings, and check their combination (KIP-91). Raises SettingError.

    A `delivery.timeout.ms` without time for lingering and one request is an error if it was set;
    the default is raised. The same holds for `acks` with idempotence, and for idempotence with
    transactions.
    """
    config, notes = load(ProducerConfig, settings, accepted=IGNORED)
    if config.transactional_id is not None:
        is_set = {"enable.idempotence", "enable_idempotence"} & set(settings)
        if is_set and not config.enable_idempotence:
            raise SettingError("enable.idempotence", "must be true with transactional.id")
        config = attrs.evolve(config, enable_idempotence=True)
    if config.enable_idempotence:
        config = _idempotent(config, acks_set="acks" in settings)

    # Every record must have the time to wait in its batch and for one response.
    least_ms = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms >= least_ms:
        return config, notes
    if {"delivery.timeout.ms", "delivery_timeout_ms"} & set(settings):
        raise SettingError(
            "delivery.timeout.ms",
            f"must be at least linger.ms + request.timeout.ms, {least_ms}",
        )
    return attrs.evolve(config, delivery_timeout_ms=least_ms), notes


def refuse_transactions(config: ProducerConfig) -> None:
    """Raise SettingError if the settings of a command's producer ask for transactions."""
    if config.transactional_id is not None:
        raise SettingError(
            "transactional.id", "is for programs, which begin and commit; remove it here"
        )


def _idempotent(config: ProducerConfig, *, acks_set: bool) -> ProducerConfig:
    """Check the settings for numbered records: all replicas acknowledge, and retries exist."""
    if acks_set and config.required_acks != -1:
        raise SettingError("acks", f"must be all with enable.idempotence, not {config.acks}")

    if config.retries == 0:
        raise SettingError("retries", "must be above 0 with enable.idempotence")

    # With more in flight, a broker could not tell a repeated batch from one out of order.
    if config.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
        raise SettingError(
            "max.in.flight.requests.per.connection",
            f"must be at most {MAX_IN_FLIGHT_IDEMPOTENT} with enable.idempotence, "
            f"not {config.max_in_flight}",
        )

    return attrs.evolve(config, acks="all")
