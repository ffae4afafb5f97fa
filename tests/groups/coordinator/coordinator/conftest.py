"""A coordinator whose log waits until a test replicates it."""

import pytest

from groups.runtime.memory_partition_log import MemoryPartitionLog
from tests.groups.coordinator.bench import Bench


@pytest.fixture
def replicated() -> Bench:
    """Several replicas: an append is replicated when the test says so."""
    return Bench(MemoryPartitionLog(replicas=3)).lead(0).run()
