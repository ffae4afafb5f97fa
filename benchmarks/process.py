"""A child process that dies with us, and whose time and memory are read from /proc."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

STOP_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_LIBC = ctypes.CDLL(None)


@attrs.define(eq=False)
class Process:
    """A running child, and the file of its output."""

    name: str
    child: subprocess.Popen[bytes]
    log_file: Path

    @property
    def cpu_s(self) -> float:
        """Processor seconds that all its threads have used, in steps of 10 ms."""
        return _read_cpu_s(self.child.pid)

    @property
    def children_cpu_s(self) -> float:
        """The same of all processes that it has started, and that live."""
        pid = self.child.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(_read_cpu_s(int(child)) for child in children)

    @property
    def loop_cpu_s(self) -> float:
        """Processor seconds that its first thread, which runs the event loop, has used."""
        ran_ns, _, _ = Path(f"/proc/{self.child.pid}/schedstat").read_text().split()
        return int(ran_ns) / 1e9

    @property
    def resident_bytes(self) -> int:
        """Memory that it occupies now (VmRSS)."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]

        # The line is in KB.
        return int(line.split()[1]) * 1024

    def check_alive(self) -> None:
        """Raise RuntimeError, with the end of its output, if the process has ended."""
        if self.child.poll() is not None:
            tail = self.log_file.read_text("utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{self.name} ended with {self.child.returncode}:\n{tail}")

    def stop(self, *, at_once: bool = False, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it by SIGTERM, or by SIGKILL if `at_once` or after `timeout_s`."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)

        try:
            self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def spawn(
    name: str, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
) -> Process:
    """Start a child; its output goes to DIRECTORY/NAME.log."""
    directory.mkdir(parents=True, exist_ok=True)
    log_file = directory / f"{name}.log"

    with log_file.open("ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            # Ctrl-C reaches us alone, and we stop the children in order.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    return Process(name, child, log_file)


def _read_cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name of the program, in brackets, may hold spaces.
    fields = stat.rpartition(")")[2].split()

    # Fields 14 and 15 of proc(5): time in user mode and in the kernel.
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _die_with_parent() -> None:
    # The kernel sends it when the thread ends that started the child.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
