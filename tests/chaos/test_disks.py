"""What brokers leave behind is compared byte for byte."""

from collections.abc import Mapping
from pathlib import Path

from tests.chaos.disks import differing_logs

SEGMENT = "00000000000000000000.log"


def directories_with(directory: Path, logs: Mapping[str, Mapping[str, bytes]]) -> list[Path]:
    """Write a directory for each broker, with the logs it has."""
    for broker, partitions in logs.items():
        for partition, content in partitions.items():
            (directory / broker / partition).mkdir(parents=True)
            (directory / broker / partition / SEGMENT).write_bytes(content)
    return [directory / broker for broker in logs]


def test_logs_that_differ_are_named_with_their_first_difference(tmp_path: Path) -> None:
    both = directories_with(
        tmp_path,
        {
            "one": {"same-0": b"abc", "other-0": b"abc", "shorter-0": b"abc", "missing-0": b""},
            "two": {"same-0": b"abc", "other-0": b"axc", "shorter-0": b"ab"},
        },
    )
    assert differing_logs(both) == [
        "missing-0 is only with one",
        "other-0: one has 3 bytes, two has 3 bytes, the same up to 1",
        "shorter-0: one has 3 bytes, two has 2 bytes, the same up to 2",
    ]


def test_events_go_on_while_brokers_end(tmp_path: Path) -> None:
    both = directories_with(
        tmp_path,
        {
            "one": {"__group_events-0": b"abc", "__group_events-1": b"abc"},
            "two": {"__group_events-0": b"abcdef", "__group_events-1": b"axcdef"},
        },
    )
    assert differing_logs(both) == [
        "__group_events-1: one has 3 bytes, two has 6 bytes, the same up to 1"
    ]
