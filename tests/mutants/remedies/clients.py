"""Remedies in the clients: errors, producer, cluster and tools."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {
    "clients.transport.connection": "tests/clients/transport/test_connection.py",
    "clients.producer.sender": "tests/clients/producer/test_producer.py",
    "groups.coordinator.commits": "tests/groups/coordinator/test_commits.py",
    "groups.coordinator.coordinator": "tests/groups/coordinator/coordinator",
    "groups.coordinator.partition_deletion": "tests/groups/coordinator/coordinator",
    "groups.runtime.runtime": "tests/groups/coordinator/coordinator",
    "clients.registered_brokers": "tests/clients/test_registered_brokers.py",
}
"""By module: the tests that notice, where a remedy names none."""

_TRANSACTIONS = "tests/clients/producer/transactions/"

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "A14",
        "a broker that is registered under no address is left out",
        "clients.registered_brokers:registered_brokers",
        "is_address(endpoint.host, endpoint.port)",
        "True",
    ),
    Remedy(
        "A14",
        "an address that cannot be is a failed connection",
        "clients.transport.connection:Connection._connect",
        "(OSError, ValueError, OverflowError)",
        "OSError",
    ),
    Remedy(
        "A16",
        "a record that is given up is counted",
        "clients.producer.sender:Sender._fail",
        "self._metrics.record_errors.count += failed",
        "pass",
    ),
    Remedy(
        "A16",
        "a record that is given up is in the log",
        "clients.producer.sender:Sender._fail",
        "self._undelivered.add(batch.partition, error(), failed, monotonic_ms())",
        "pass",
    ),
    Remedy(
        "A16",
        "what failed while a producer works is in the log before it closes",
        "clients.producer.sender:Sender._turn",
        "self._undelivered.write_due(now)",
        "pass",
    ),
    Remedy(
        "P18",
        "what is to be kept for ever is kept until the last time there is",
        "groups.coordinator.commits:records_of",
        "min(now_ms + request.retention_time_ms, MAX_TIME_MS)",
        "now_ms + request.retention_time_ms",
    ),
    Remedy(
        "P18",
        "a request that fails leaves nobody waiting",
        "groups.runtime.runtime:CoordinatorRuntime.submit",
        "self._pending.pop(event.request_id, None)",
        "pass",
    ),
    Remedy(
        "A17",
        "a deleted topic's offsets are dropped some a turn",
        "groups.coordinator.coordinator:GroupCoordinator._delete",
        "led.shard.offsets.slices_of(deleted, DELETION_SLICE)",
        "led.shard.offsets.slices_of(deleted, 1 << 40)",
    ),
    Remedy(
        "A17",
        "what is committed anew while an old topic is dropped stays",
        "groups.coordinator.partition_deletion:delete_slice",
        "key not in shard.in_flight and key not in shard.recommitted",
        "key not in shard.in_flight",
    ),
    Remedy(
        "E1",
        "it is known whether partitions were added before their transaction is aborted",
        "clients.producer.transactions.decide:_end_asked",
        "transaction.waiting.clear()",
        "transaction.waiting.clear(); transaction.adding = frozenset()",
        _TRANSACTIONS + "test_decide.py " + _TRANSACTIONS + "test_stories.py",
    ),
    Remedy(
        "E2",
        "a transaction with a batch that may be written is followed by another epoch",
        "clients.producer.transactions.decide:_give_up",
        "transaction.needs_renewal = True",
        "pass",
        _TRANSACTIONS + "test_decide.py",
    ),
    Remedy(
        "E3",
        "a commit that may have been written is in doubt when its producer is fenced",
        "clients.producer.transactions.decide:_repeat",
        "transaction.may_be_committed = True",
        "pass",
        _TRANSACTIONS + "test_decide.py " + _TRANSACTIONS + "test_stories.py",
    ),
    Remedy(
        "E4",
        "offsets beyond what a consumer has handed out are not its own",
        "clients.group_metadata:_foreign",
        "behind is None or committed.offset > behind",
        "behind is None",
        "tests/clients/high_level/test_group_metadata.py",
    ),
    Remedy(
        "E5",
        "offsets of open transactions are waited for",
        "offsets.store:CoordinatorStore.fetch",
        "fetch_offsets_request(group, partitions, require_stable=True)",
        "fetch_offsets_request(group, partitions)",
        "tests/clients/high_level/test_group_metadata.py",
    ),
    Remedy(
        "E6",
        "a record that waited belongs to the transaction in which it was sent",
        "clients.producer.producer:Producer._prepare",
        'self._transactions.check_open("send", transaction)',
        "pass",
        _TRANSACTIONS + "test_transactions.py",
    ),
)
