"""Build the settings wing: settings of topics and of brokers, and what follows their changes."""

from __future__ import annotations

from broker.process.process import Process
from broker.process.signals import Signals
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.config_changes import ConfigChanges
from broker.settings.config_resources import ConfigResources
from broker.settings.entity_configs import BROKERS, CLIENTS, IPS, TOPICS, USERS
from broker.settings.tls_contexts import TlsContexts
from broker.settings.topic_configs import TopicConfigs
from protocol.frozen import frozen
from zk.api import ZkSession


@frozen
class SettingsWing:
    """The parts of the wing that others use."""

    topics: TopicConfigs
    brokers: BrokerConfigs
    changes: ConfigChanges
    tls: TlsContexts
    resources: ConfigResources


def assemble(
    *,
    config: BrokerConfig,
    process: Process,
    signals: Signals,
    zk: ZkSession,
    topic_configs: TopicConfigs,
    tls: TlsContexts,
) -> SettingsWing:
    """Build the wing. Topic configs exist before it, because logs are opened with them.

    So do contexts of TLS, because a broker whose stores cannot be read has nothing to open.
    """
    brokers = BrokerConfigs(zk, config, process.spawn, signals.broker_settings)

    # Notifications name an entity: brokers are read here, others go out as signals.
    changes = ConfigChanges(
        zk,
        process.spawn,
        {
            TOPICS: signals.topic_named,
            USERS: signals.user_named,
            CLIENTS: signals.client_named,
            IPS: signals.ip_named,
            BROKERS: brokers.broker_changed,
        },
        signals.settings_unsure,
    )
    resources = ConfigResources(zk, topic_configs, brokers, tls)
    return SettingsWing(
        topics=topic_configs, brokers=brokers, changes=changes, tls=tls, resources=resources
    )
