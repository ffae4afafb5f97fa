"""Many commits at once."""

from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from tests.groups.coordinator.bench import NOW_MS, Bench


def load_of(*batches: bytes, config: OffsetsConfig | None = None) -> Bench:
    """A coordinator that finds `batches` in partition 0, before it leads it."""
    bench = Bench(MemoryPartitionLog(), config)
    for data in batches:
        bench.log.append(0, data, NOW_MS)
    return bench
