"""Keys and values of transaction markers."""

import pytest

from protocol.records.control_record import ABORT, COMMIT, coordinator_epoch, marker_type
from protocol.records.corrupt_record import CorruptRecord


@pytest.mark.parametrize(
    ("key", "kind"),
    [(b"\0\0\0\0", ABORT), (b"\0\0\0\1", COMMIT), (b"\0\7\0\2 and more", 2)],
)
def test_type_of_a_marker_is_behind_the_version(key: bytes, kind: int) -> None:
    assert marker_type(key) == kind


@pytest.mark.parametrize("key", [b"", b"\0\0", b"\xff\xff\0\0"])
def test_key_that_is_no_version_and_type_is_a_fault(key: bytes) -> None:
    with pytest.raises(CorruptRecord, match=f"key {key.hex()} is not"):
        marker_type(key)


def test_coordinator_epoch_is_behind_the_version() -> None:
    assert coordinator_epoch(b"\0\0\0\0\0\x05") == 5


def test_value_that_is_too_short_tells_no_epoch() -> None:
    assert coordinator_epoch(b"\0\0\0\0") == -1
