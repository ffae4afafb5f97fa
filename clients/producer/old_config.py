"""Settings of a producer with `producer.type`: the Scala producers' names, with 0.8.2's defaults.

0.7's names are other names of the same. Two defaults differ, so that nothing is lost unnoticed:
`request.required.acks` is 1 and not 0, and `queue.enqueue.timeout.ms` waits for ever, as in 0.8.2.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import IGNORED, ClusterConfig, ProducerConfig
from protocol.settings import SettingError, declared_settings, ge, gt, load, one_of, setting

BATCH_BYTES = 1_000_000
"""Most that a request holds for a partition, uncompressed: what brokers accept by default."""

NEVER_MS = 2**31 - 1

_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}
_ACKS = ("-1", "0", "1", "all")

_IGNORED: Mapping[str, str] = {
    **IGNORED,
    "delivery.timeout.ms": "message.send.max.retries is what bounds all attempts",
    "linger.ms": "queue.time is how long messages wait for a batch",
    "max.block.ms": "queue.enqueue.timeout.ms is how long send waits for room",
    "max.in.flight.requests.per.connection": "a batch is sent when the one before is done",
    "reconnect.interval": "a connection is kept while it works",
    "reconnect.time.interval.ms": "a connection is kept while it works",
    "serializer.encoding": "text is UTF-8",
    "zk.connectiontimeout.ms": "socket.connection.setup.timeout.ms is what bounds it",
    "zk.read.num.retries": "message.send.max.retries is what bounds all attempts",
    "zk.sessiontimeout.ms": "ZooKeeper is asked for brokers, and the session ends with the answer",
    "zk.synctime.ms": "ZooKeeper is asked for brokers, and the session ends with the answer",
}
_BROKER_LIST_ENTRY = re.compile(r"\d+:(?P<address>[^:]+:\d+)")


@attrs.frozen(kw_only=True)
class OldProducerConfig(ClusterConfig):
    """Times in ms; queue and batch in messages."""

    producer_type: str = setting(
        "producer.type", "sync", validator=one_of("sync", "async"), doc="Send at once, or queue"
    )
    request_required_acks: str = setting(
        "request.required.acks",
        "1",
        validator=one_of(*_ACKS),
        doc="Who must have a message: the leader, all in-sync replicas (-1), nobody (0)",
        aliases=("acks",),
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        10_000,
        validator=ge(1),
        doc="Time for one response",
        aliases=("socket.timeout.ms",),
    )
    message_send_max_retries: int = setting(
        "message.send.max.retries",
        3,
        validator=ge(0),
        doc="Attempts after the first",
        aliases=("num.retries", "retries"),
    )
    metadata_max_age_ms: int = setting(
        "topic.metadata.refresh.interval.ms",
        600_000,
        doc="Metadata older than this is read anew before sending; 0 each time, -1 after failures",
        aliases=("metadata.max.age.ms",),
    )
    queue_buffering_max_ms: int = setting(
        "queue.buffering.max.ms",
        5_000,
        validator=ge(0),
        doc="How long messages may wait for a batch to fill",
        aliases=("queue.time",),
    )
    queue_buffering_max_messages: int = setting(
        "queue.buffering.max.messages",
        10_000,
        validator=ge(1),
        doc="Messages that may wait",
        aliases=("queue.size",),
    )
    queue_enqueue_timeout_ms: int = setting(
        "queue.enqueue.timeout.ms",
        -1,
        doc="Time to wait for room in the queue; 0: QueueFull at once, negative: for ever",
        aliases=("queue.enqueueTimeout.ms",),
    )
    batch_num_messages: int = setting(
        "batch.num.messages", 200, validator=ge(1), doc="A full batch", aliases=("batch.size",)
    )
    serializer: Any = setting(
        "serializer.class",
        None,
        doc="Messages to bytes: an Encoder with to_message, a callable, module:Class, Kafka's name",
        aliases=("value.serializer",),
    )
    key_serializer: Any = setting(
        "key.serializer.class",
        None,
        doc="As for messages, whose serializer is the default",
        aliases=("key.serializer",),
    )
    partitioner: Any = setting(
        "partitioner.class",
        None,
        doc="A Partitioner, module:Class, or a callable of (key, partitions)",
    )
    compression_codec: str = setting(
        "compression.codec",
        "none",
        validator=one_of("none", "gzip", "snappy", "lz4", "zstd", *_CODECS),
        doc="Name, or 0.7's number",
        aliases=("compression.type",),
    )
    compressed_topics: tuple[str, ...] = setting(
        "compressed.topics", (), doc="Topics to compress; all if empty"
    )
    event_handler: Any = setting("event.handler", None, doc="Sends in our place")
    event_handler_props: str = setting("event.handler.props", "", doc="a=b,c=d for its init")
    callback_handler: Any = setting("callback.handler", None, doc="Hooks around the queue")
    callback_handler_props: str = setting("callback.handler.props", "", doc="a=b,c=d for its init")
    max_request_size: int = setting(
        "max.request.size",
        33_554_432,
        validator=ge(1),
        doc="Bytes of a message, and of a request",
        aliases=("max.message.size",),
    )
    buffer_memory: int = setting(
        "buffer.memory", 33_554_432, validator=ge(1), doc="Bytes on their way to brokers"
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes", 102_400, validator=ge(-1), doc="SO_SNDBUF", aliases=("buffer.size",)
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        validator=gt(0),
        doc="Time to connect",
        aliases=("connect.timeout.ms",),
    )

    @property
    def attempts_ms(self) -> int:
        """The longest that all attempts to send a message may take."""
        attempts = self.message_send_max_retries + 1
        return attempts * (self.request_timeout_ms + self.retry_backoff_ms)

    @property
    def producer_config(self) -> ProducerConfig:
        """The settings under which batches are sent, once they leave the handlers.

        Nothing lingers there, as a batch comes whole. Metadata does not age there either: the event
        handler reads it anew.
        """
        shared = {name: getattr(self, name) for name in declared_settings(ClusterConfig)}
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
    """Whether these are settings for this kind of producer."""
    return any(name.replace(".", "_") == "producer_type" for name in settings)


def refuse_old_names(settings: Mapping[str, Any]) -> None:
    """Raise SettingError for a name that has a meaning with `producer.type` alone."""
    old_names = _names(OldProducerConfig) - _names(ProducerConfig)
    for given in settings:
        if given in old_names:
            raise SettingError(given, "is a setting of producers with producer.type")


def load_old_producer_config(
    settings: Mapping[str, Any],
) -> tuple[OldProducerConfig, list[str]]:
    """Read them, and check what only makes sense together. Raises SettingError.

    A batch that the queue could not hold is refused if it was set, made smaller if it was not.
    """
    config, notes = load(OldProducerConfig, _without_broker_ids(settings), accepted=_IGNORED)
    for given in (config.event_handler_props, config.callback_handler_props):
        properties(given)
    if config.callback_handler is not None and config.producer_type == "sync":
        notes.append("callback.handler: its hooks are called around a queue, and sync has none")
    most = config.queue_buffering_max_messages
    if config.batch_num_messages <= most:
        return config, notes
    if config.batch_num_messages != attrs.fields(OldProducerConfig).batch_num_messages.default:
        raise SettingError("batch.num.messages", f"is above queue.buffering.max.messages, {most}")
    return attrs.evolve(config, batch_num_messages=most), notes


def properties(text: str) -> dict[str, str]:
    """Read `a=b,c=d`. Raises SettingError for a piece without exactly one `=`."""
    pairs = [piece.split("=") for piece in text.split(",") if piece.strip()]
    for pair in pairs:
        if len(pair) != 2:
            raise SettingError("event.handler.props or callback.handler.props", f"{text!r}: a=b,…")
    return {name.strip(): value.strip() for name, value in pairs}


def _names(config: type) -> set[str]:
    return {name for s in declared_settings(config).values() for name in (s.name, *s.aliases)}


def _without_broker_ids(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With 0.7's `broker.list`, whose entries are `id:host:port`, as `bootstrap.servers`."""
    kept = dict(settings)
    for name in ("broker.list", "broker_list"):
        if entries := kept.pop(name, None):
            if "bootstrap.servers" in kept:
                raise SettingError(name, "is given besides bootstrap.servers")
            kept["bootstrap.servers"] = _BROKER_LIST_ENTRY.sub(r"\g<address>", entries)
    return kept
