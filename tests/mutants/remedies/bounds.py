"""Remedies in the bounds that writer and reader share, and what is decompressed."""

from tests.mutants.remedy import Remedy

TESTS = {
    "protocol.bounds": "tests/protocol/test_bounds.py",
    "protocol.records.compression": "tests/protocol/test_bounds.py",
    "core_log.appending.message_validator": "tests/protocol/test_bounds.py",
    "core_log.appending.validator": "tests/protocol/test_bounds.py",
    "compaction.source": "tests/compaction/test_clean_unopened.py",
    "compaction.record_filter": "tests/compaction/test_clean_unopened.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "P3",
        "readers allow as much as a leader takes",
        "protocol.bounds:",
        "MAX_DECOMPRESSED_BYTES: Final = MAX_FRAME_BYTES",
        "MAX_DECOMPRESSED_BYTES: Final = 64 * 2**20",
    ),
    Remedy(
        "P3",
        "nothing is compressed that nobody would decompress",
        "protocol.records.compression:compress",
        "len(data) > MAX_DECOMPRESSED_BYTES",
        "False",
    ),
    Remedy(
        "P3",
        "plain messages become batches that can be read",
        "core_log.appending.message_validator:_batches",
        "MAX_PRODUCED_BYTES",
        "2**31 - 1",
    ),
    Remedy(
        "P3",
        "a batch that no frame can carry is refused",
        "core_log.appending.validator:check_size",
        "size > MAX_BATCH_BYTES",
        "False",
    ),
    Remedy(
        "P3",
        "what is too large is not called corrupt",
        "core_log.appending.validator:_api_error",
        "isinstance(error, (RecordsTooLarge, TooManyRecords))",
        "False",
    ),
    Remedy(
        "P3",
        "a batch that the cleaner cannot open does not stop it",
        "compaction.source:open_batches",
        "yield rows, None",
        "raise CorruptRecord",
    ),
    Remedy(
        "P3",
        "... and is not taken for one of which nothing stays",
        "compaction.record_filter:RecordFilter._decide_by_offsets",
        "batches.first_offsets[row] in self.unopened",
        "False",
    ),
    Remedy(
        "P3",
        "... and tombstones behind it stay",
        "compaction.record_filter:RecordFilter._tombstones_stay",
        "self.kept_unopened > 0",
        "False",
    ),
    Remedy(
        "P9",
        "lz4 blocks get no more room than they can fill",
        "protocol.records.compression:_lz4_frame",
        "min(block_bytes, length if word & _LZ4_STORED else _LZ4_LARGEST_RATIO * length)",
        "block_bytes",
    ),
)
