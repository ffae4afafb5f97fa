"""Remedies in the clients: errors, producer, cluster and tools."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {
    "clients.connection": "tests/clients/test_connection.py",
    "clients.producer.sender": "tests/clients/producer/test_producer.py",
    "clients.registered_brokers": "tests/clients/test_registered_brokers.py",
}
"""By module: the tests that notice, where a remedy names none."""

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
        "clients.connection:Connection._connect",
        "(OSError, ValueError, OverflowError)",
        "OSError",
    ),
    Remedy(
        "A16",
        "a record that is given up is counted",
        "clients.producer.sender:Sender._fail",
        "self._metrics.record_error_total += failed",
        "pass",
    ),
    Remedy(
        "A16",
        "a record that is given up is in the log",
        "clients.producer.sender:Sender._fail",
        "self._undelivered.add(batch.partition, error(), failed, elapsed_ms())",
        "pass",
    ),
    Remedy(
        "A16",
        "what failed while a producer works is in the log before it closes",
        "clients.producer.sender:Sender._turn",
        "self._undelivered.write_due(now)",
        "pass",
    ),
)
