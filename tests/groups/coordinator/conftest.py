"""A coordinator to ask."""

from collections.abc import Iterator

import pytest

from groups.runtime.memory_partition_log import MemoryPartitionLog
from tests.groups.coordinator.bench import Bench


@pytest.fixture(autouse=True)
def benches() -> Iterator[None]:
    """End the benches of a test with it."""
    yield
    Bench.end_all()


@pytest.fixture
def bench() -> Bench:
    """One replica: appended records are replicated."""
    return Bench(MemoryPartitionLog()).lead(0).run()
