"""The example that counts each flight once, by README.md's command, for a shorter time."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.stage.processes import ROOT

SHOWN = r"```console\n\$ python (-m examples\.exactly_once)\n(.*?)```"
# A worker is killed first, then a broker.
SHORTER = ("--seconds", "12", "--seed", "27", "--flights", "40000")
FLIGHTS = 40_000
CARRIER = re.compile(r"^  [A-Z0-9]{2}: +(\d+) flights, .* late  (.*)$", re.MULTILINE)
KILLS = re.compile(r"workers were killed (\d+) times, brokers (\d+) times")
TIMEOUT_S = 400.0


def without_figures(line: str) -> str:
    return " ".join(re.sub(r"[\d.]+", "N", line).split())


def test_each_flight_is_counted_once_though_workers_and_brokers_are_killed() -> None:
    (shown,) = re.findall(SHOWN, (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    command, output = shown
    ran = subprocess.run(
        [sys.executable, *command.split(), *SHORTER],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr

    (kills,) = KILLS.findall(ran.stdout)
    assert all(int(count) > 0 for count in kills), ran.stdout
    counts = CARRIER.findall(ran.stdout)
    assert {mark for _, mark in counts} == {"ok"}
    assert sum(int(count) for count, _ in counts) == FLIGHTS

    # It prints what is shown, with figures of its own.
    lines = {without_figures(line) for line in ran.stdout.splitlines()}
    promised = [line for line in output.splitlines() if line != "..."]
    assert [line for line in promised if without_figures(line) not in lines] == []
