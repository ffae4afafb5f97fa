"""Run a member of the group: it writes a line for each flight, then asks for the next.

A message counts as consumed when the next one is asked for. So nothing is committed that is not in
the file, and a member that is killed leaves no gap: another one gets again what was not committed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from examples.demo.flights import TOPIC
from kgroup import ConsumerConnector
from kgroup.serializers import json_decoder

BURST = 100


async def consume(zookeeper: str, group: str, out: Path, rate: int) -> None:
    """Consume, at most `rate` flights a second, until cancelled."""
    config = {
        "zookeeper.connect": zookeeper,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 1000,
        "zookeeper.session.timeout.ms": 3000,
        "rebalance.backoff.ms": 500,
    }
    loop = asyncio.get_running_loop()
    async with ConsumerConnector(config) as connector:
        streams = await connector.create_message_streams({TOPIC: 1}, value_decoder=json_decoder)
        count = 0
        due = loop.time()

        with out.open("ab", buffering=0) as lines:
            async for message in streams[TOPIC][0]:
                flight = message.value
                line = f"{message.partition} {message.offset} {flight['carrier']}"
                lines.write(f"{line} {flight['dep_delay'] or 0}\n".encode())
                count += 1
                if count % BURST == 0:
                    due = max(due + BURST / rate, loop.time())
                    await asyncio.sleep(due - loop.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=int, required=True)
    arguments = vars(parser.parse_args())

    async def run() -> None:
        consuming = asyncio.ensure_future(consume(**arguments))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consuming.cancel)
        await asyncio.wait({consuming})
        if not consuming.cancelled():
            consuming.result()

    asyncio.run(run())


if __name__ == "__main__":
    main()
