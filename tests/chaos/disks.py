"""What brokers leave behind: logs that must be the same, byte for byte, and what they have written
of themselves."""

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from protocol.internal_topics import EVENTS_TOPIC
from tests.stage.turn_guard import LONGEST_TURN_S

PARTITION = re.compile(r".+-\d+")
ALARMING = re.compile(r"^(Traceback \(most recent call last\):|\[[^\]]*\] CRITICAL .*)", re.M)
ERROR = re.compile(r"^\[[^\]]*\] ERROR .*", re.M)
TURN = re.compile(r"a turn of the event loop took \S+ s, and (\S+) s of the processor")


def differing_logs(directories: Sequence[Path]) -> list[str]:
    """The partitions whose bytes are not the same in all of the directories.

    Brokers end one after another, and whoever takes over a group that has members writes an event:
    a log of events may be shorter where its broker ended earlier."""
    names = sorted({each.name for d in directories for each in d.iterdir() if is_partition(each)})
    wrong = []
    for name in names:
        logs = {d.name: content(d / name) for d in directories if (d / name).is_dir()}
        if len(logs) < len(directories):
            wrong.append(f"{name} is only with {', '.join(logs)}")
        elif len(set(logs.values())) > 1 and not _are_events_that_go_on(name, logs):
            wrong.append(f"{name}: {_difference(logs)}")
    return wrong


def is_partition(directory: Path) -> bool:
    """Whether it is a log, and not one that was renamed to be deleted."""
    return directory.is_dir() and PARTITION.fullmatch(directory.name) is not None


def content(directory: Path) -> bytes:
    """All of a log, whatever its segments."""
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def _are_events_that_go_on(name: str, logs: dict[str, bytes]) -> bool:
    longest = max(logs.values(), key=len)
    is_of_events = name.rpartition("-")[0] == EVENTS_TOPIC
    return is_of_events and all(map(longest.startswith, logs.values()))


def _difference(logs: dict[str, bytes]) -> str:
    sizes = ", ".join(f"{name} has {len(log)} bytes" for name, log in logs.items())
    columns = zip(*logs.values(), strict=False)
    same = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
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
