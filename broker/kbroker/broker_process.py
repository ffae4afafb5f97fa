"""A broker that runs as a child process, and ends when its parent does."""

import asyncio
import signal
from collections.abc import Iterable, Sequence
from typing import IO

from protocol.child_python import python_command, python_environment

STOP_TIMEOUT_S = 30.0


async def start_broker(
    arguments: Sequence[str], *, stdout: int | IO[bytes], stderr: IO[bytes] | None = None
) -> asyncio.subprocess.Process:
    """Run `kbroker start` with these arguments; without `stderr` it logs where this process does.

    It has a session of its own, so that Ctrl-C reaches this process alone.
    """
    return await asyncio.create_subprocess_exec(
        *python_command("broker.kbroker.command", "start", *arguments, "--with-parent"),
        env=python_environment(),
        # The lifeline: it ends when this process does.
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


async def stop_brokers(processes: Iterable[asyncio.subprocess.Process]) -> None:
    """Stop brokers, all at once; kill those that take longer than STOP_TIMEOUT_S."""
    running = [process for process in processes if process.returncode is None]
    for process in running:
        process.terminate()

    # Each may take seconds to move its leaders away.
    waits = [asyncio.ensure_future(process.wait()) for process in running]
    if waits:
        await asyncio.wait(waits, timeout=STOP_TIMEOUT_S)
        for process in running:
            if process.returncode is None:
                process.kill()
        await asyncio.wait(waits)


def describe_end(name: str, code: int) -> str:
    """Say how a process ended."""
    end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
    return f"{name} {end}"
