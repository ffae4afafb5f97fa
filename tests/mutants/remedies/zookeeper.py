"""Remedies in ZooKeeper as it is in the field: sessions, watches, ensembles, rights."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = ()
