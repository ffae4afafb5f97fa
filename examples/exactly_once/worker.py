"""Add up flights by carrier, in transactions: the totals and the place in the flights go together.

The program knows nothing of failures. What goes wrong ends it, and whoever runs it starts it again:
it goes on where its last committed transaction ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

from examples.demo.flights import TOPIC, Delays
from kgroup import ConsumerConnector, OffsetAndMetadata, Producer, TopicPartition
from kgroup.errors import TransactionFailed
from kgroup.serializers import json_decoder

GROUP = "totals"
TOTALS = "totals"


async def work(bootstrap: str, name: str) -> None:
    """Consume, add up and produce, until cancelled."""
    consumer = {
        "bootstrap.servers": bootstrap,
        "membership": "coordinator",
        "group.id": GROUP,
        # A restart takes the place of the one that was killed.
        "group.instance.id": name,
        "session.timeout.ms": 6000,
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "isolation.level": "read_committed",
    }
    producer_config = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name,
        "transaction.timeout.ms": 10_000,
    }
    async with ConsumerConnector(consumer) as connector, Producer(producer_config) as producer:
        streams = await connector.create_message_streams({TOPIC: 1}, value_decoder=json_decoder)
        async for flights in streams[TOPIC][0].batches():
            reader = connector.group_metadata()
            totals = add_up([flight.value for flight in flights])
            last = flights[-1]
            place = {
                TopicPartition(TOPIC, last.partition): OffsetAndMetadata(last.offset + 1),
            }
            try:
                async with producer.transaction():
                    for carrier, delays in totals.items():
                        value = {"flights": delays.flights, "minutes": delays.minutes}
                        await producer.send(
                            TOTALS, json.dumps(value).encode(), key=carrier.encode()
                        )
                    await producer.send_offsets_to_transaction(place, reader)
            except TransactionFailed as error:
                if not error.can_be_run_again:
                    raise
                # It was aborted: read the flights again.
                await connector.seek_to_committed()


def add_up(flights: Sequence[dict]) -> dict[str, Delays]:  # type: ignore[type-arg]
    """Return the flights and the minutes of delay of each carrier."""
    totals: dict[str, Delays] = {}
    for flight in flights:
        totals.setdefault(flight["carrier"], Delays()).add(flight["dep_delay"])
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--name", required=True, help="the transactional id, one for each worker")
    arguments = vars(parser.parse_args())
    asyncio.run(work(**arguments))


if __name__ == "__main__":
    main()
