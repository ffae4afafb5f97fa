"""Type and default of Kafka's broker settings without effect here, to describe them as Kafka does.

`accepted_settings` says why each has none. Names, types and defaults are those of Kafka 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.frozen import frozen
from protocol.settings import SettingError

# Type, name and default; without one it is null.
_TABLE = """
CLASS     alter.config.policy.class.name
INT       background.threads 10
CLASS     create.topic.policy.class.name
LONG      delegation.token.expiry.check.interval.ms 3600000
LONG      delegation.token.expiry.time.ms 86400000
PASSWORD  delegation.token.master.key
LONG      delegation.token.max.lifetime.ms 604800000
PASSWORD  delegation.token.secret.key
INT       delete.records.purgatory.purge.interval.requests 1
INT       fetch.purgatory.purge.interval.requests 1000
INT       kafka.metrics.polling.interval.secs 10
LIST      kafka.metrics.reporters ''
INT       log.flush.start.offset.checkpoint.interval.ms 60000
LIST      metric.reporters ''
INT       metrics.num.samples 2
STRING    metrics.recording.level INFO
LONG      metrics.sample.window.ms 30000
INT       num.network.threads 3
INT       num.replica.alter.log.dirs.threads
SHORT     offsets.commit.required.acks -1
INT       producer.purgatory.purge.interval.requests 1000
INT       queued.max.requests 500
STRING    replica.selector.class
INT       replica.socket.receive.buffer.bytes 65536
CLASS     sasl.client.callback.handler.class
PASSWORD  sasl.jaas.config
STRING    sasl.kerberos.kinit.cmd /usr/bin/kinit
LONG      sasl.kerberos.min.time.before.relogin 60000
LIST      sasl.kerberos.principal.to.local.rules DEFAULT
STRING    sasl.kerberos.service.name
DOUBLE    sasl.kerberos.ticket.renew.jitter 0.05
DOUBLE    sasl.kerberos.ticket.renew.window.factor 0.8
CLASS     sasl.login.callback.handler.class
CLASS     sasl.login.class
SHORT     sasl.login.refresh.buffer.seconds 300
SHORT     sasl.login.refresh.min.period.seconds 60
DOUBLE    sasl.login.refresh.window.factor 0.8
DOUBLE    sasl.login.refresh.window.jitter 0.05
LONG      socket.connection.setup.timeout.max.ms 30000
LONG      socket.connection.setup.timeout.ms 10000
INT       zookeeper.max.in.flight.requests 10
INT       zookeeper.sync.time.ms 2000

CLASS     client.quota.callback.class
CLASS     principal.builder.class
BOOLEAN   zookeeper.ssl.crl.enable false
BOOLEAN   zookeeper.ssl.ocsp.enable false
"""


@frozen
class Ineffective:
    """The type of a setting by Kafka's name of it, and its default."""

    type: str
    default: str | None


def _parse() -> Mapping[str, Ineffective]:
    settings = {}
    for line in _TABLE.split("\n"):
        if line:
            kind, name, *default = line.split()
            settings[name] = Ineffective(kind, default[0].strip("'") if default else None)
    return settings


INEFFECTIVE: Mapping[str, Ineffective] = _parse()

THREADS: Mapping[str, int] = {
    "background.threads": 10,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 1,
    "num.replica.fetchers": 1,
}
"""Numbers of threads that can change while a broker of Kafka runs, with their defaults."""

CHANGES_WITHOUT_EFFECT = frozenset(
    {
        *THREADS,
        "metric.reporters",
        *(name for name in INEFFECTIVE if name.startswith(("sasl.kerberos.", "sasl.login.refr"))),
    }
)
"""Settings that can change in Kafka: a change is stored and described, and does nothing here."""


def check_threads(name: str, value: str, now: int) -> None:
    """Refuse a number of threads that Kafka refuses beside the present one. Raises SettingError."""
    try:
        threads = int(value)
    except ValueError:
        raise SettingError(name, "Not a number of type INT", value) from None
    failed = f"Dynamic thread count update validation failed for {name}={threads}, value should"
    if threads < 1:
        raise SettingError(name, f"{failed} be at least 1")
    if threads < now // 2:
        raise SettingError(name, f"{failed} be at least half the current value {now}")
    if threads > now * 2:
        raise SettingError(name, f"{failed} not be greater than double the current value {now}")
