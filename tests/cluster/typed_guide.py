"""Commands of a guide, typed as they stand."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line


def script(guide: str) -> str:
    """Its blocks of shell as one program, which says what it does and stops where it fails."""
    return "set -eux\n" + "".join(re.findall(r"```sh\n(.*?)```", guide, re.DOTALL))


def put_on_path(directory: Path) -> str:
    """A PATH on which the commands are found without being installed."""
    directory.mkdir()
    for program in ("kbroker", "kgroup"):
        file = directory / program
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command_line(program))} "$@"\n')
        file.chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def typed(
    guide: Path, cluster: DevCluster, directory: Path, deadline_s: float
) -> subprocess.CompletedProcess[str]:
    """What a guide says is typed in `directory`, all of it in one shell; what comes of it."""
    return subprocess.run(
        ["bash", "-c", script(guide.read_text())],
        cwd=directory,
        env=cluster.env | {"PATH": put_on_path(directory / "bin"), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline_s,
    )


@contextmanager
def shell(text: str, cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A shell on a program; what it has left in the background ends with the block."""
    with (cwd / "transcript").open("w") as transcript:
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=cwd,
            env=env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=transcript,
            stderr=transcript,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # It may have left nothing.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
