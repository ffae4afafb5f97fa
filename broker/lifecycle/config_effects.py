"""Put changed settings into effect while the broker runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import attrs

from broker.controller.controller import Controller
from broker.lifecycle.periodic import run_every
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuotas
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.config_changes import LOOK_INTERVAL_MS, ConfigChanges
from broker.settings.entity_configs import BROKERS, TOPICS
from broker.settings.topic_configs import TopicConfigs
from compaction.cleaner import Cleaner


@attrs.frozen
class ConfigEffects:
    """The parts of a broker that its settings and those of topics take effect on."""

    topics: TopicConfigs
    brokers: BrokerConfigs
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    controller: Controller
    cleaner: Cleaner
    spawn: Callable[[Coroutine[Any, Any, None]], object]

    async def start(self, changes: ConfigChanges) -> None:
        """Put the stored settings into effect, and follow their changes."""
        self.brokers.changed = self._brokers_changed
        changes.listeners = {TOPICS: self._topic_changed, BROKERS: self.brokers.broker_changed}
        changes.session_renewed = self._any_changed
        await changes.start()
        self.spawn(
            run_every(LOOK_INTERVAL_MS, "look for changed settings", partial(self._look, changes))
        )

        # Settings may have changed between the reading at start and the watch.
        await self.topics.read_again()
        await self.brokers.read()

    def _brokers_changed(self, now: BrokerConfig) -> None:
        self.quotas.leader.limit = now.leader_replication_throttled_rate
        self.quotas.follower.limit = now.follower_replication_throttled_rate
        self.quotas.directories.limit = now.replica_alter_log_dirs_io_max_bytes_per_second
        self.cleaner.update_config(now.cleaner)
        self.topics.set_defaults(now.log)
        self.replicas.refresh_configs()
        self.controller.allow_unclean_election(now.log.unclean_leader_election_enable)

    async def _look(self, changes: ConfigChanges) -> None:
        await changes.look()
        self.topics.read_unreadable()
        self.brokers.read_unreadable()

    def _topic_changed(self, topic: str) -> None:
        self.topics.topic_changed(topic)
        self.controller.topic_config_changed(topic)

    def _any_changed(self) -> None:
        self.topics.any_changed()
        self.brokers.any_changed()
