"""One member of the group: writes a line for each flight it is given, then asks for the next.

Asking for the next message is what counts one as consumed. So nothing is ever committed that is
not in the file, and a member that is killed leaves no gap: what it had not committed comes to
another one again.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from clients.high_level.connector import ConsumerConnector
from clients.serializers import json_decoder
from examples.demo.flights import TOPIC

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
        seen, due = 0, loop.time()
        with out.open("ab", buffering=0) as lines:
            async for message in streams[TOPIC][0]:
                flight = message.value
                line = f"{message.partition} {message.offset} {flight['carrier']}"
                lines.write(f"{line} {flight['dep_delay'] or 0}\n".encode())
                seen += 1
                if seen % BURST == 0:
                    due = max(due + BURST / rate, loop.time())
                    await asyncio.sleep(due - loop.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rate", type=int, required=True)
    arguments = vars(parser.parse_args())

    async def until_told() -> None:
        consuming = asyncio.ensure_future(consume(**arguments))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consuming.cancel)
        await asyncio.wait({consuming})
        if not consuming.cancelled():
            consuming.result()

    asyncio.run(until_told())


if __name__ == "__main__":
    main()
