"""A test suite of another project, which is run against brokers, and what it says of each test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

import attrs

from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.stage.waiting import block_until

RUN_S = 3600.0
"""The longest of them on a busy machine."""

ATTEMPTS = 4


class Outcome(StrEnum):
    """What became of a test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


Results = Mapping[str, Outcome]
"""The outcomes of tests by their names."""


@attrs.frozen
class Suite:
    """One project's tests.

    - `prepare` fetches and builds them, on its first call on a machine. It returns where they are.
    - `run` runs all tests, or those with the given names, and returns the outcomes of what ran.
    - `otherwise`: tests that do not pass twice on stock Kafka 2.8.2, and why.
    - `not_yet`: tests that pass there and not on ours, and what is missing.
    - `passes`: the number of tests that pass at least.
    """

    name: str
    wanted: Wanted
    prepare: Callable[[], Path]
    run: Callable[[Path, SuiteBrokers, Path, Collection[str]], Results]
    passes: int
    otherwise: Mapping[str, str] = attrs.field(factory=dict)
    not_yet: Mapping[str, str] = attrs.field(factory=dict)

    def run_on(self, make: str, directory: Path) -> Results:
        """Run all of it on brokers of a make; and again, by themselves, those that fail.

        What fails each time has failed. Some of these tests fail now and then on any broker: they
        wait for a fixed number of seconds, or count what their client does in its own time.
        """
        built = self.prepare()
        with SuiteBrokers.running(make, self.wanted, directory) as brokers:
            results = {**self.run(built, brokers, directory / "1", ())}
            for attempt in range(2, ATTEMPTS + 1):
                failed = [*failures(results).keys() - self.otherwise.keys() - self.not_yet.keys()]
                if failed:
                    again = self.run(built, brokers, directory / str(attempt), failed)
                    results |= {name: again[name] for name in failed if name in again}
        return results


def failures(results: Results) -> Results:
    """Return those that failed."""
    return {name: outcome for name, outcome in results.items() if outcome is Outcome.FAILED}


def run_to_end(
    command: Sequence[str],
    directory: Path,
    env: Mapping[str, str],
    log: Path,
    meanwhile: Callable[[], None] = lambda: None,
) -> str:
    """Run a suite in a directory, whatever it ends with; return all that it wrote.

    `meanwhile` is called again and again, in the thread that owns the brokers.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):

        def has_ended() -> bool:
            meanwhile()
            return process.poll() is not None

        try:
            block_until(has_ended, f"{log} ends", RUN_S)
        finally:
            # It may have started others.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return log.read_text("utf-8", "replace")


# ---- what runners write


def read_junit(file: Path) -> Results:
    """Read the XML of pytest: names are MODULE::TEST."""
    results = {}
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = Outcome.PASSED
        if kinds & {"failure", "error"}:
            outcome = Outcome.FAILED
        elif "skipped" in kinds:
            outcome = Outcome.SKIPPED
        module = case.attrib["classname"].rpartition(".")[2]
        results[f"{module}::{case.attrib['name']}"] = outcome
    return results


_GO_LINE = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
_GO_BEGIN = re.compile(r"^=== RUN +(\S+)$", re.MULTILINE)
_GO_OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}


def read_go(output: str) -> Results:
    """Read what `go test -v` writes. A test that began, and never ended, has failed.

    One that fails with parts of it is left out: the parts say so, and may pass in another run.
    """
    results = dict.fromkeys(_GO_BEGIN.findall(output), Outcome.FAILED)
    results |= {name: _GO_OUTCOMES[word] for word, name in _GO_LINE.findall(output)}
    parts_failed = {name.rpartition("/")[0] for name in failures(results)}
    return {name: outcome for name, outcome in results.items() if name not in parts_failed}


_CARGO_LINE = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)\b", re.MULTILINE)
_CARGO_OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}


def read_cargo(output: str) -> Results:
    """Read what the tests of a crate write."""
    return {name: _CARGO_OUTCOMES[word] for name, word in _CARGO_LINE.findall(output)}
