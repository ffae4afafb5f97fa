"""Ctrl-C while a program imports what it needs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S

MODULE = """
import sys

def wait(where):
    print(where, flush=True)
    sys.stdin.read()

if {at_import}:
    wait("importing")

def main():
    try:
        wait("running")
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize(
    ("at_import", "line", "code"),
    [(True, "importing\n", -signal.SIGINT), (False, "running\n", 130)],
    ids=["while it imports", "while it runs"],
)
def test_ctrl_c_leaves_no_traceback(tmp_path: Path, at_import: bool, line: str, code: int) -> None:
    (tmp_path / "slow_command.py").write_text(MODULE.format(at_import=at_import))
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            "from clients.command_line.program import run; run('slow_command')",
        ],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == line
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stderr) == (code, "")


def test_a_job_in_the_background_goes_on_ignoring_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "slow_command.py").write_text(MODULE.format(at_import=True))
    start = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from clients.command_line.program import run; run('slow_command')"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", start],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (0, "running\n")


@pytest.mark.parametrize("program", ["clients.kgroup.program", "broker.kbroker.program"])
def test_both_programs_run_their_command(program: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", f"from {program} import main; main()", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0
    assert ran.stdout
    assert f"{program}:main" in (ROOT / "pyproject.toml").read_text()
