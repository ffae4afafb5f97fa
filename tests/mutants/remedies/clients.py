"""Remedies in the clients: errors, producer, cluster and tools."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = ()
