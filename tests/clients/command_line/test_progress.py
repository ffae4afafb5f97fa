"""A command that takes long says so on a terminal, and leaves no trace of that."""

import os
import pty
import re
import socket
import subprocess

from tests.stage.processes import ROOT, command_line
from tests.stage.terminal import read_until
from tests.stage.waiting import DEADLINE_S

# The broker that is asked accepts, and says nothing until the time is over.
COMMAND = ("kgroup", "describe", "--all-groups", "--timeout", "2000", "-b")


def test_work_is_shown_on_a_terminal_and_erased_at_its_end() -> None:
    terminal, inside = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = command_line(*COMMAND, f"127.0.0.1:{silent.getsockname()[1]}")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=inside) as process:
            os.close(inside)
            read_until(terminal, "\rreading groups: 1 s")
            after = read_until(terminal, "error: ")
            process.communicate(timeout=DEADLINE_S)
    os.close(terminal)
    assert re.search(r"\r {19,}\rerror: ", after)


def test_a_pipe_gets_the_result_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = command_line(*COMMAND, f"127.0.0.1:{silent.getsockname()[1]}")
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
