"""Settings of the clients, under Kafka's names and with the defaults of its 2.x Java clients."""

from collections.abc import Mapping
from typing import Any

from clients.security import SecurityConfig
from clients.transport.broker_versions import known_broker_version
from protocol.frozen import frozen
from protocol.settings import Check, ge, int32, setting
from protocol.text import explain_unsendable

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
    client_id: str = setting(
        "client.id", "kgroup", validator=explain_unsendable, doc="Name for brokers' logs"
    )

    # ---- times of requests and retries
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30_000,
        validator=int32(0),
        doc="Longest wait for one response (KIP-19)",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        60_000,
        validator=int32(0),
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
        "send.buffer.bytes", -1, validator=int32(-1), doc="SO_SNDBUF; -1: the system's default"
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", -1, validator=int32(-1), doc="SO_RCVBUF; -1: the system's default"
    )
