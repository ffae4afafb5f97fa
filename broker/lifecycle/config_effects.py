"""Put changed settings into effect while the broker runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from broker.authentication.scram_users import ScramUsers
from broker.controller.controller import Controller
from broker.lifecycle.listener_changes import ListenerChanges
from broker.network.listener import Listener
from broker.process.change_notifications import LOOK_INTERVAL_MS
from broker.process.periodic import run_every
from broker.process.signals import Signals
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuotas
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.config_changes import ConfigChanges
from broker.settings.tls_contexts import TlsContexts
from broker.settings.topic_configs import TopicConfigs
from compaction.cleaner import Cleaner
from protocol.frozen import frozen


@frozen
class ConfigEffects:
    """The parts of a broker that its settings and those of topics and users take effect on.

    `users` is None if no listener has SCRAM.
    """

    topics: TopicConfigs
    brokers: BrokerConfigs
    users: ScramUsers | None
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    controller: Controller
    cleaner: Cleaner
    listener: Listener
    listener_changes: ListenerChanges
    tls: TlsContexts
    spawn: Callable[[Coroutine[Any, Any, None]], object]

    def subscribe(self, signals: Signals) -> None:
        """Follow changes of settings."""
        # Changed settings take effect.
        signals.broker_settings.subscribe(self._apply_broker_settings)
        signals.topic_settings.subscribe(self.replicas.update_config)

        # A notification names a topic.
        signals.topic_named.subscribe(self.topics.topic_changed)
        signals.topic_named.subscribe(self.controller.topic_config_changed)

        # Another names a user whose password may have changed.
        if self.users is not None:
            signals.user_named.subscribe(self.users.user_changed)
            signals.settings_unsure.subscribe(self.users.any_changed)

        # In a new session anything may have changed.
        signals.settings_unsure.subscribe(self.topics.any_changed)
        signals.settings_unsure.subscribe(self.brokers.any_changed)

    async def start(self, changes: ConfigChanges) -> None:
        """Put the stored settings into effect, and follow their changes."""
        await changes.start()
        self.spawn(
            run_every(LOOK_INTERVAL_MS, "look for changed settings", partial(self._look, changes))
        )

        # Settings may have changed between the reading at start and the watch.
        await self.topics.read_again()
        await self.brokers.read()
        await self.listener_changes.begin(self.brokers.now)
        if self.users is not None:
            await self.users.read_all()

    def _apply_broker_settings(self, config: BrokerConfig) -> None:
        self.quotas.leader.limit = config.leader_replication_throttled_rate
        self.quotas.follower.limit = config.follower_replication_throttled_rate
        self.quotas.directories.limit = config.replica_alter_log_dirs_io_max_bytes_per_second
        self.cleaner.update_config(config.cleaner)
        self.listener.update_limits(config.connection_limits)
        if self.tls.listeners:
            self.spawn(self.tls.apply(config))
        self.spawn(self.listener_changes.apply(config))

        # The defaults first: the logs' configs are made from them.
        self.topics.set_defaults(config.log)
        self.replicas.refresh_configs()

        # Partitions without a leader may get one now.
        self.controller.allow_unclean_election(config.log.unclean_leader_election_enable)

    async def _look(self, changes: ConfigChanges) -> None:
        # A refused read has lost its watch, and its settings are in doubt.
        await changes.look()
        self.topics.read_unreadable()
        self.brokers.read_unreadable()
        if self.users is not None:
            self.users.read_unreadable()
