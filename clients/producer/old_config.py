"""Settings of a producer with `producer.type`: the Scala producers' names and 0.8.2's defaults.

0.7's names are aliases. Two of its defaults are not used, so that no loss goes unnoticed: as in
0.8.2, `request.required.acks` is 1 and not 0, and `queue.enqueue.timeout.ms` waits without limit.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import IGNORED, ClusterConfig
from clients.producer.config import ProducerConfig
from protocol.frozen import frozen
from protocol.settings import SettingError, declared_settings, ge, gt, load, one_of, setting

BATCH_BYTES = 1_000_000
"""Largest batch of a partition, uncompressed: the size that brokers accept by default."""

NEVER_MS = 2**31 - 1

# 0.7 gave codecs by number.
_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}
_ACKS = ("-1", "0", "1", "all")

_IGNORED: Mapping[str, str] = {
    **IGNORED,
    "delivery.timeout.ms": "message.send.max.retries limits all attempts",
    "linger.ms": "queue.time limits how long messages wait for a batch",
    "max.block.ms": "queue.enqueue.timeout.ms limits how long send waits for room",
    "max.in.flight.requests.per.connection": "a batch is sent when the one before is finished",
    "reconnect.interval": "a connection is kept while it works",
    "reconnect.time.interval.ms": "a connection is kept while it works",
    "serializer.encoding": "text is UTF-8",
    "zk.connectiontimeout.ms": "socket.connection.setup.timeout.ms limits it",
    "zk.read.num.retries": "message.send.max.retries limits all attempts",
    "zk.sessiontimeout.ms": "the session in ZooKeeper only lasts until the brokers are read",
    "zk.synctime.ms": "the session in ZooKeeper only lasts until the brokers are read",
}
# 0.7's entry of a broker: id, host and port.
_BROKER_LIST_ENTRY = re.compile(r"\d+:(?P<address>[^:]+:\d+)")


@frozen(kw_only=True)
class OldProducerConfig(ClusterConfig):
    """Settings of a producer with `producer.type`. Times are in ms, queue and batch in messages."""

    # ---- when a message counts as sent
    producer_type: str = setting(
        "producer.type",
        "sync",
        validator=one_of("sync", "async"),
        doc="sync: send at once; async: queue messages",
    )
    request_required_acks: str = setting(
        "request.required.acks",
        "1",
        validator=one_of(*_ACKS),
        doc="Acknowledge when the leader has a message (1), all in-sync replicas (-1), nobody (0)",
        aliases=("acks",),
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        10_000,
        validator=ge(1),
        doc="Longest wait for one response",
        aliases=("socket.timeout.ms",),
    )
    message_send_max_retries: int = setting(
        "message.send.max.retries",
        3,
        validator=ge(0),
        doc="Attempts after the first one",
        aliases=("num.retries", "retries"),
    )

    # ---- metadata
    metadata_max_age_ms: int = setting(
        "topic.metadata.refresh.interval.ms",
        600_000,
        doc="Age at which metadata is read again; 0: before each send, negative: after failures",
        aliases=("metadata.max.age.ms",),
    )

    # ---- the queue
    queue_buffering_max_ms: int = setting(
        "queue.buffering.max.ms",
        5_000,
        validator=ge(0),
        doc="Longest wait of messages for a batch to fill",
        aliases=("queue.time",),
    )
    queue_buffering_max_messages: int = setting(
        "queue.buffering.max.messages",
        10_000,
        validator=ge(1),
        doc="Most messages in the queue",
        aliases=("queue.size",),
    )
    queue_enqueue_timeout_ms: int = setting(
        "queue.enqueue.timeout.ms",
        -1,
        doc="Longest wait for room in the queue; 0: QueueFull at once, negative: no limit",
        aliases=("queue.enqueueTimeout.ms",),
    )
    batch_num_messages: int = setting(
        "batch.num.messages",
        200,
        validator=ge(1),
        doc="Messages in a full batch",
        aliases=("batch.size",),
    )

    # ---- encoding and partitions
    serializer: Any = setting(
        "serializer.class",
        None,
        doc="Encodes messages: object with to_message, callable, module:Class or Kafka's class",
        aliases=("value.serializer",),
    )
    key_serializer: Any = setting(
        "key.serializer.class",
        None,
        doc="Encodes keys; by default the serializer of messages does",
        aliases=("key.serializer",),
    )
    partitioner: Any = setting(
        "partitioner.class",
        None,
        doc="Chooses partitions: object, module:Class, or a callable of (key, partitions)",
    )
    compression_codec: str = setting(
        "compression.codec",
        "none",
        validator=one_of("none", "gzip", "snappy", "lz4", "zstd", *_CODECS),
        doc="Codec by name, or by 0.7's number",
        aliases=("compression.type",),
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), doc="Topics whose messages are compressed; all if empty"
    )

    # ---- the application's hooks
    event_handler: Any = setting("event.handler", None, doc="Handles messages in our place")
    event_handler_props: str = setting("event.handler.props", "", doc="a=b,c=d for its init")
    callback_handler: Any = setting("callback.handler", None, doc="Hooks around the queue")
    callback_handler_props: str = setting("callback.handler.props", "", doc="a=b,c=d for its init")

    # ---- bytes and sockets
    max_request_size: int = setting(
        "max.request.size",
        33_554_432,
        validator=ge(1),
        doc="Most bytes of a message, and of a request",
        aliases=("max.message.size",),
    )
    buffer_memory: int = setting(
        "buffer.memory", 33_554_432, validator=ge(1), doc="Most bytes sent or buffered"
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        -1,
        validator=ge(-1),
        doc="SO_SNDBUF; -1: the system's default",
        aliases=("buffer.size",),
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        validator=gt(0),
        doc="Longest time to connect",
        aliases=("connect.timeout.ms",),
    )

    @property
    def attempts_ms(self) -> int:
        """Longest time for all attempts to send a message."""
        attempts = self.message_send_max_retries + 1
        return attempts * (self.request_timeout_ms + self.retry_backoff_ms)

    @property
    def producer_config(self) -> ProducerConfig:
        """Settings of the producer that sends the batches of the event handler.

        Nothing lingers there, since a batch comes whole. Metadata does not age there: the event
        handler reads it again.
        """
        shared = {name: getattr(self, name) for name in declared_settings(ClusterConfig)}

        # The event handler sends one batch at a time, so its limits hold for the buffer too.
        return ProducerConfig(
            **{**shared, "metadata_max_age_ms": NEVER_MS},
            acks=self.request_required_acks,
            retries=self.message_send_max_retries,
            batch_size=min(BATCH_BYTES, self.max_request_size),
            buffer_memory=self.buffer_memory,
            max_request_size=self.max_request_size,
            max_block_ms=self.attempts_ms,
            delivery_timeout_ms=self.attempts_ms,
            compression_type=_CODECS.get(self.compression_codec, self.compression_codec),
            compressed_topics=self.compressed_topics,
        )


def names_producer_type(settings: Mapping[str, Any]) -> bool:
    """Return whether `producer.type` is among the settings."""
    return any(name.replace(".", "_") == "producer_type" for name in settings)


def refuse_old_names(settings: Mapping[str, Any]) -> None:
    """Raise SettingError for a name that only has a meaning with `producer.type`."""
    # Names that both producers have, such as `batch.size`, pass with their newer meaning.
    old_names = _names(OldProducerConfig) - _names(ProducerConfig)
    for name in settings:
        if name in old_names:
            raise SettingError(name, "is a setting of producers with producer.type")


def load_old_producer_config(
    settings: Mapping[str, Any],
) -> tuple[OldProducerConfig, list[str]]:
    """Load the settings and check their combination. Raises SettingError.

    A batch larger than the queue is an error if it was set; the default is made smaller.
    """
    config, notes = load(OldProducerConfig, _without_broker_ids(settings), accepted=_IGNORED)

    # Their form is checked at the start; their content is the handlers' matter.
    for text in (config.event_handler_props, config.callback_handler_props):
        properties(text)
    if config.callback_handler is not None and config.producer_type == "sync":
        notes.append("callback.handler: its hooks are called around a queue, which sync lacks")

    # A batch that never fills would always wait for the time.
    most = config.queue_buffering_max_messages
    if config.batch_num_messages <= most:
        return config, notes

    if config.batch_num_messages != attrs.fields(OldProducerConfig).batch_num_messages.default:
        raise SettingError("batch.num.messages", f"is above queue.buffering.max.messages, {most}")
    return attrs.evolve(config, batch_num_messages=most), notes


def properties(text: str) -> dict[str, str]:
    """Read `a=b,c=d`. Raises SettingError for a part without exactly one `=`."""
    pairs = [piece.split("=") for piece in text.split(",") if piece.strip()]
    for pair in pairs:
        if len(pair) != 2:
            raise SettingError("event.handler.props or callback.handler.props", f"{text!r}: a=b,…")

    return {name.strip(): value.strip() for name, value in pairs}


def _names(config: type) -> set[str]:
    return {
        name
        for declared in declared_settings(config).values()
        for name in (declared.name, *declared.aliases)
    }


def _without_broker_ids(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with 0.7's `broker.list` (`id:host:port`) as `bootstrap.servers`."""
    rest = dict(settings)
    for name in ("broker.list", "broker_list"):
        if entries := rest.pop(name, None):
            if "bootstrap.servers" in rest:
                raise SettingError(name, "cannot be set together with bootstrap.servers")

            rest["bootstrap.servers"] = _BROKER_LIST_ENTRY.sub(r"\g<address>", entries)

    return rest
