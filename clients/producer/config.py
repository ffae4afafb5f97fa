"""Settings of the producer, under Kafka's names and with the defaults of its 2.x Java client."""

from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import IGNORED, ClusterConfig, unsupported
from protocol.frozen import frozen
from protocol.settings import SettingError, ge, load, one_of, setting
from protocol.text import explain_unsendable

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Number of a producer's last batches that a broker remembers."""


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
        doc="Longest time to deliver a record (KIP-91), without stalls of the process",
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
        validator=lambda name: explain_unsendable(name) if name else "must not be empty",
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
