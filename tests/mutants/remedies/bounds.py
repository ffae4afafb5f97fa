"""Remedies in the bounds that writer and reader share, and what is decompressed."""

from tests.mutants.remedy import Remedy

TESTS: dict[str, str] = {}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = ()
