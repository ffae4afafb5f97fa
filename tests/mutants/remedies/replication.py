"""Remedies in replication: followers, fetch sessions, the purgatory."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = ()
