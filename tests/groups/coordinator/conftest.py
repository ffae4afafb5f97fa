"""A coordinator to ask."""

from collections.abc import Iterator

import pytest

from groups.coordinator.memory_offsets_log import MemoryOffsetsLog
from tests.groups.coordinator.bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One replica: what is appended is replicated."""
    made = Bench(MemoryOffsetsLog()).lead(0).run()
    yield made
    made.loop.close()
