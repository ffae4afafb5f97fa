"""What brokers leave behind: logs that must be the same, byte for byte, and what they have written
of themselves."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.stage.turn_guard import LONGEST_TURN_S

PARTITION = re.compile(r".+-\d+")
ALARMING = re.compile(r"^(Traceback \(most recent call last\):|\[[^\]]*\] CRITICAL .*)", re.M)
ERROR = re.compile(r"^\[[^\]]*\] ERROR .*", re.M)
TURN = re.compile(r"a turn of the event loop took \S+ s, and (\S+) s of the processor")


def differing_logs(directories: Sequence[Path]) -> list[str]:
    """The partitions whose bytes are not the same in all of the directories."""
    names = sorted({each.name for d in directories for each in d.iterdir() if is_partition(each)})
    wrong = []
    for name in names:
        logs = {d.name: content(d / name) for d in directories if (d / name).is_dir()}
        if len(logs) < len(directories):
            wrong.append(f"{name} is only with {', '.join(logs)}")
        elif len(set(logs.values())) > 1:
            wrong.append(f"{name}: {_difference(logs)}")
    return wrong


def is_partition(directory: Path) -> bool:
    """Whether it is a log, and not one that was renamed to be deleted."""
    return directory.is_dir() and PARTITION.fullmatch(directory.name) is not None


def content(directory: Path) -> bytes:
    """All of a log, whatever its segments."""
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def _difference(logs: dict[str, bytes]) -> str:
    same = 0
    for same, column in enumerate(zip(*logs.values(), strict=False)):  # noqa: B007
        if len(set(column)) > 1:
            break
    sizes = ", ".join(f"{name} has {len(log)} bytes" for name, log in logs.items())
    return f"{sizes}, the same up to {same}"


def alarms(log_file: Path) -> list[str]:
    """Tracebacks, each with its last line, and critical lines."""
    text = log_file.read_text("utf-8", errors="replace")
    return [f"{log_file.name}: {_told(text, found)}" for found in ALARMING.finditer(text)]


def _told(text: str, found: "re.Match[str]") -> str:
    if not found[0].startswith("Traceback"):
        return found[0]
    before = text.rfind("\n[", 0, found.start())
    headline = text[before + 1 : found.start()].strip().splitlines()[:1]
    lines = [line.removeprefix("\t") for line in text[found.end() :].splitlines()[1:]]
    last = next((line for line in lines if line and not line.startswith(" ")), "")
    return " ".join([*headline, last])


def errors(log_file: Path) -> int:
    """How many lines tell of errors."""
    return len(ERROR.findall(log_file.read_text("utf-8", errors="replace")))


def long_turns(log_file: Path) -> list[str]:
    """The turns of a broker's event loop that computed for longer than any may."""
    found = TURN.finditer(log_file.read_text("utf-8", errors="replace"))
    return [f"{log_file.name}: {each[0]}" for each in found if float(each[1]) > LONGEST_TURN_S]
