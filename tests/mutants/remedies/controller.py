"""Remedies in the controller, topics and settings."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {
    "broker.settings.topic_configs": (
        "tests/broker/settings/test_topic_configs.py "
        "tests/broker/replication/test_leader_and_isr.py"
    ),
    "broker.settings.config_changes": "tests/broker/settings/test_config_changes.py",
    "broker.replication.replica_manager": "tests/broker/replication/test_replica_manager.py",
    "broker.replication.replica_roles": "tests/broker/replication/test_replica_roles.py",
    "broker.controller.reassignment": "tests/broker/controller/test_reassignment.py",
    "compaction.cleaner": "tests/compaction/cleaner",
    "broker.controller.topic_changes": "tests/broker/controller/test_topic_changes.py",
    "broker.replication.isr_writer": "tests/broker/replication/test_isr_writer.py",
    "broker.server": "tests/broker/test_server.py",
    "broker.controller.controller": "tests/broker/controller/test_controller.py",
    "broker.controller.brokers": "tests/broker/controller/test_shutdown.py",
    "broker.controller.notifications": "tests/broker/controller/test_shutdown.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "P2",
        "LeaderAndIsr is not obeyed before a topic's settings are known",
        "broker.settings.topic_configs:TopicConfigs.when_known",
        "return wait if expired else None",
        "return respond() if expired else None",
    ),
    Remedy(
        "P2",
        "where settings cannot be understood nothing is deleted or compacted",
        "broker.settings.topic_configs:TopicSettings.over",
        "config.keeping_all() if self.is_doubtful else config",
        "config",
    ),
    Remedy(
        "P2",
        "settings that cannot be understood leave those that were known",
        "broker.settings.topic_configs:select_valid",
        "attrs.evolve(before, is_doubtful=True, mzxid=stored.mzxid)",
        "TopicSettings({}, True, stored.mzxid)",
    ),
    Remedy(
        "P10",
        "a controller that stops leaves its place",
        "broker.controller.controller:Controller.close",
        "await self._leave(step_down)",
        "pass",
    ),
    Remedy(
        "P10",
        "the loop goes on while logs are closed",
        "broker.server:Broker._close_logs",
        "await asyncio.get_running_loop().run_in_executor(thread, close)",
        "close()",
    ),
    Remedy(
        "P14",
        "settings of a topic reach its own partitions",
        "broker.replication.replica_manager:ReplicaManager.update_config",
        "self._by_topic.get(topic, {}).values()",
        "[p for tp, p in self.partitions.items() if tp.topic == topic]",
    ),
    Remedy(
        "P14",
        "a new session takes what changed alone",
        "broker.settings.topic_configs:TopicConfigs.read_again",
        "known is not None and known.mzxid != stored.mzxid",
        "known is not None",
    ),
    Remedy(
        "P20",
        "changed settings are asked for until the session answers",
        "broker.settings.config_changes:ConfigChanges._ask",
        "return await retry_until_connected(self.zk, call)",
        "return await call()",
    ),
    Remedy(
        "L4",
        "what ZooKeeper refuses is tried again",
        "broker.controller.controller:Controller._perform",
        "self._retry_later(effect)",
        "pass",
    ),
    Remedy(
        "P22",
        "a topic larger than ZooKeeper takes is refused",
        "broker.controller.topic_changes:check_size",
        "size > MAX_TOPIC_BYTES",
        "False",
    ),
    Remedy(
        "P22",
        "names that lead out of a log directory are refused",
        "broker.replication.replica_roles:is_path",
        "is_legal(tp.topic) and tp.partition >= 0",
        "True",
    ),
    Remedy(
        "P22",
        "notifications are as large as ZooKeeper takes",
        "broker.replication.isr_writer:IsrWriter.notify",
        "range(0, len(changed), NOTIFIED_AT_ONCE)",
        "range(0, len(changed), len(changed))",
    ),
    Remedy(
        "P24",
        "after a job all other logs are not measured",
        "compaction.cleaner:Cleaner._run",
        "self._begin_dirtiest()",
        "await self.look()",
    ),
    Remedy(
        "L7",
        "a topic that moves as a whole is written once",
        "broker.controller.reassignment:start",
        "[WriteAssignments(tuple(writes)), *ready] if writes else ready",
        "[*(WriteAssignments((each,)) for each in writes), *ready]",
    ),
    Remedy(
        "L4",
        "writes that ZooKeeper refuses the controller are tried again",
        "broker.controller.controller:Controller._perform",
        "type(effect) not in RETRIED",
        "type(effect).__name__.startswith(('Delete', 'Drop', 'WriteAssignments'))",
        "tests/broker/controller/test_refused_writes.py",
    ),
    Remedy(
        "L4",
        "a late write of an assignment does not take back what came since",
        "broker.controller.failover:handle_retry_due",
        "write.replicas == state.replicas(write.partition)",
        "True",
        "tests/broker/controller/test_refused_writes.py",
    ),
    Remedy(
        "P2",
        "what is stored for brokers is known before logs are recovered",
        "broker.server:Broker._load_logs",
        "logs.defaults = log_config",
        "pass",
    ),
    Remedy(
        "L4",
        "a topic that is there again is not deleted late",
        "broker.controller.failover:handle_retry_due",
        "topic not in state.deletions",
        "False",
        "tests/broker/controller/test_refused_writes.py",
    ),
    Remedy(
        "P26",
        "when a broker has left, its partitions' states are read again",
        "broker.controller.brokers:handle_brokers_changed",
        "_refresh_unwritten(state, left, effects)",
        "[]",
    ),
    Remedy(
        "P26",
        "a broker that left goes again where its leader took it back",
        "broker.controller.notifications:handle_leadership_read",
        "settle(state, changed, leader_and_isr_to=None)",
        "[]",
    ),
)
"""A remedy: a piece of code without which a fault, or a hazard, is back."""
