"""The options of the sink: those of Spark's Kafka sink, and `delivery`, which is ours.

An option that begins with `kafka.` is a setting of the producer. Spark passes names in lower case,
so case never counts.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from clients.config import ClusterConfig
from clients.producer.config import ProducerConfig, load_producer_config
from clients.security import login_of
from protocol.frozen import frozen
from protocol.settings import (
    SettingError,
    declared_settings,
    load,
    one_of,
    setting,
)
from spark_connector.client_options import CLIENT, check_bootstrap, named_as_given, split_options

AT_LEAST_ONCE = "at-least-once"
ONCE = "once"

BOOTSTRAP = "kafka.bootstrap.servers"

PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "batch.size": 262_144,
}
"""What the sink sets where the user does not: acknowledged rows survive their leader, a retry is
not written twice, and a task has no reason to send small batches."""

REFUSED: Mapping[str, str] = {
    "key.serializer": "keys are sent as they are; cast the column to string or binary",
    "value.serializer": "values are sent as they are; cast the column to string or binary",
    "serializer.class": "columns are sent as they are; cast them to string or binary",
    "transactional.id": "the tasks of a query are many producers; delivery=once writes rows once",
}
"""Settings of a producer that have no meaning here, as in Spark's Kafka sink."""

NO_EFFECT: Mapping[str, str] = {
    "includeHeaders": "the column headers is written where it is there",
    "checkpointLocation": "is Spark's own",
    "queryName": "is Spark's own",
    "path": "topics have no path",
}
"""Options that are accepted and have no effect, and why."""


@frozen(kw_only=True)
class SinkOptions:
    """The options of one write. It can be pickled, and is sent to every worker."""

    producer: Mapping[str, Any] = attrs.field(factory=dict, repr=False)  # it may have passwords
    """Settings of the producer by name: those whose options begin with `kafka.`, and defaults."""
    topic: str | None = setting(
        "topic", None, doc="Topic of all rows; it outranks the column topic"
    )
    delivery: str = setting(
        "delivery",
        AT_LEAST_ONCE,
        validator=one_of(AT_LEAST_ONCE, ONCE),
        doc="Whether rows that are run again are written again, or only if they are missing",
    )

    @property
    def producer_config(self) -> ProducerConfig:
        """The producer's settings, checked."""
        config, _ = load_producer_config(self.producer)
        return config

    @property
    def cluster_settings(self) -> dict[str, Any]:
        """The settings that every client has, as the admin client takes them."""
        config = self.producer_config
        return {
            declared.name: getattr(config, field)
            for field, declared in declared_settings(ClusterConfig).items()
        }

    @property
    def is_once(self) -> bool:
        """True if rows that are run again are written only if they are missing."""
        return self.delivery == ONCE


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read and check the options of a write. Raises SettingError, which names the option."""
    settings, own = split_options(given)
    client = {name.lower(): text for name, text in settings.items()}
    options, _ = load(SinkOptions, own, accepted=NO_EFFECT)
    if options.topic == "":
        raise SettingError("topic", "names no topic")
    options = attrs.evolve(options, producer=_with_defaults(client))
    _check_producer(options, client)
    return options


def _with_defaults(client: Mapping[str, Any]) -> dict[str, Any]:
    settings = {**PRODUCER_DEFAULTS, **client}

    # Numbered records need every replica: who asks for fewer does not ask for numbers.
    weak_acks = settings["acks"] not in ("all", "-1") or settings.get("retries") == "0"
    if weak_acks and "enable.idempotence" not in client:
        settings["enable.idempotence"] = False
    return settings


def _check_producer(options: SinkOptions, client: Mapping[str, Any]) -> None:
    if not client.get("bootstrap.servers"):
        raise SettingError(BOOTSTRAP, "is required: host:port[,host:port...] of some brokers")
    for name, reason in REFUSED.items():
        if name in client:
            raise SettingError(CLIENT + name, reason)

    with named_as_given():
        config = options.producer_config
        check_bootstrap(config.bootstrap_servers)
        login_of(config)

    if options.is_once:
        _check_once(options, config)


def _check_once(options: SinkOptions, config: ProducerConfig) -> None:
    """Raise SettingError for what makes it impossible to know what was written."""
    if options.topic is None:
        raise SettingError(
            "topic", "is required with delivery=once: what was written is looked for in one topic"
        )
    if not config.enable_idempotence:
        raise SettingError(
            "delivery",
            "once needs kafka.acks=all, kafka.enable.idempotence=true and kafka.retries above 0",
        )
