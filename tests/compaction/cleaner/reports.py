"""What the cleaner says of itself."""

from __future__ import annotations

from compaction.status import STATUS_FILE, CleanerStatus, decode_status
from tests.compaction.house import TP, House


def status(house: House) -> CleanerStatus:
    """Read the status that people can see."""
    text = house.directories[0].read(STATUS_FILE)
    return decode_status(text).get(str(TP), CleanerStatus())
