"""Several brokers on one host: each a process, and started again when it dies.

A broker works on one processor, so a host with many runs one broker for each. The brokers have no
part in common but this process, which they do not outlive.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from broker.kbroker.broker_process import describe_end, start_broker, stop_brokers

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
STEADY_S = 60.0
"""A broker that lived so long is started again as if it had never died."""


class BrokerNeverReady(Exception):
    """A broker ended before it served for the first time; its last words are on stderr."""


def next_pause_s(pause_s: float, lived_s: float) -> float:
    """Return the pause before another start, from the one before it and the time lived since."""
    return FIRST_PAUSE_S if lived_s >= STEADY_S else min(pause_s * 2, MAX_PAUSE_S)


@attrs.define(eq=False)
class Supervisor:
    """The brokers of one file. Call `start`, then `watch`, and always `stop`."""

    file: Path
    derived: Sequence[Mapping[str, str]]
    """The settings of each broker in place of the file's."""
    overrides: Mapping[str, str]
    """The settings of all brokers in place of the file's; they come first."""
    _processes: dict[int, asyncio.subprocess.Process] = attrs.field(factory=dict, init=False)
    _keepers: list[asyncio.Task[None]] = attrs.field(factory=list, init=False)

    async def start(self) -> str:
        """Start all brokers, and return their addresses when all serve.

        Raises BrokerNeverReady.
        """
        ready: list[asyncio.Future[str]] = []
        for settings in self.derived:
            serves = asyncio.get_running_loop().create_future()
            ready.append(serves)
            self._keepers.append(asyncio.create_task(self._keep_running(settings, serves)))
        return ",".join(await asyncio.gather(*ready))

    async def watch(self) -> None:
        """Start brokers again that die, for ever."""
        await asyncio.gather(*self._keepers)

    async def stop(self) -> None:
        """Stop the brokers one after the other, the last one first, so that leaders move on."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

        for broker_id in sorted(self._processes, reverse=True):
            await stop_brokers([self._processes[broker_id]])

    async def _keep_running(self, settings: Mapping[str, str], serves: asyncio.Future[str]) -> None:
        """Run one broker again and again; `serves` gets its address when it first serves."""
        broker_id = int(settings["broker.id"])
        now = asyncio.get_running_loop().time
        pause_s = FIRST_PAUSE_S / 2

        while True:
            begun_s = now()
            process = await self._start(broker_id, settings)
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            if line and not serves.done():
                serves.set_result(line.partition("bootstrap=")[2].strip())

            end = describe_end(f"broker {broker_id}", await process.wait())
            if not serves.done():
                serves.set_exception(BrokerNeverReady(f"{end} before it served"))
                return

            pause_s = next_pause_s(pause_s, now() - begun_s)
            logger.warning("%s; it is started again in %g s", end, pause_s)
            await asyncio.sleep(pause_s)

    async def _start(
        self, broker_id: int, settings: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        overrides = {**self.overrides, **settings}
        options = [part for pair in overrides.items() for part in ("--override", "=".join(pair))]
        process = await start_broker(
            [str(self.file), *options, "--log-name", f"broker {broker_id}"],
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes[broker_id] = process
        return process
