"""A log that our broker wrote, faults in it, and what verify says."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from broker.kbroker.command import main
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.log_dir import LogDir
from tests.stage.stored_log import BATCH_BYTES, CONFIG, SEGMENTS, T0

FIRST, SECOND, LAST = SEGMENTS


def verify(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["log", "verify", str(directory), *options])


def list_faults(directory: Path) -> list[dict[str, Any]]:
    """Verify a directory; return its faults without their null fields."""
    result = verify(directory, "-o", "json")
    listing = json.loads(result.stdout)
    assert listing["kind"] == "faults"
    assert result.exit_code == (1 if listing["items"] else 0)
    return [
        {key: value for key, value in item.items() if value is not None}
        for item in listing["items"]
    ]


def find_fault(directory: Path) -> dict[str, Any]:
    """Return the only fault of a directory."""
    (fault,) = list_faults(directory)
    return fault


def flip(path: Path, position: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def in_batch(number: int) -> int:
    """Return a position in the records of a segment's batch."""
    return number * BATCH_BYTES + 80


def start_broker(broker: Path) -> Log:
    """Load the only log of a directory as a starting broker does."""
    ((stored,), *_) = LogDir(LogDirectory(broker)).stored_logs()
    return stored.load(CONFIG, lambda: T0)
