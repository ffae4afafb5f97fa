"""What the pipelines must give, computed from their input in plain Python."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset

from clients.simple_consumer import FetchRequest
from examples.pipelines.load import Flight, read_flights
from kgroup import LATEST_TIME, TopicPartition
from kgroup.blocking import Admin, SimpleConsumer

COUNT = 3000
"""Flights that the topics have: those of three days and a half."""

FLIGHTS = list(read_flights(COUNT))


def totals_of(flights: Iterable[Flight]) -> dict[str, list[int]]:
    """Return the number of flights and their minutes of delay, by carrier."""
    totals: dict[str, list[int]] = {}
    for flight in flights:
        total = totals.setdefault(flight["carrier"], [0, 0])
        total[0] += 1
        total[1] += int(flight["dep_delay"] or 0)
    return totals


def closed_flights() -> list[Flight]:
    """Return the flights of the windows that a watermark of a day closes."""
    watermark = max(map(scheduled_hour, FLIGHTS)) - timedelta(days=1)
    hour = timedelta(hours=1)
    return [flight for flight in FLIGHTS if scheduled_hour(flight) + hour <= watermark]


def scheduled_hour(flight: Flight) -> datetime:
    return datetime.fromisoformat(flight["time_hour"])


def airborne_flights() -> list[dict[str, Any]]:
    """Return the flights that left and arrived, by id."""
    return [
        {name: flight[name] for name in ("id", "carrier", "dest")}
        | {"minutes": int(flight["air_time"])}
        for flight in FLIGHTS
        if flight["dep_delay"] is not None and flight["air_time"] is not None
    ]


def decoded_flights() -> list[Flight]:
    """Return the flights with the columns of `decode`."""
    columns = ("id", "carrier", "origin", "dest", "dep_delay", "distance")
    return [{name: flight[name] for name in columns} for flight in FLIGHTS]


def group_lag(bootstrap: str, group: str, topic: str) -> int:
    """Return how far a group is behind the topic's end."""
    ends = log_ends(bootstrap, topic)
    with Admin(bootstrap) as admin:
        committed = admin.group_offsets(group, list(ends))
    return sum(ends.values()) - sum(place.offset for place in committed.values())


def log_ends(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    with Admin(bootstrap) as admin:
        count = len(admin.describe_topics([topic])[topic].partitions)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME))
    return {partition: end.offset for partition, end in ends.items()}


def read_json(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return the values of a topic as a plain reader sees them."""
    host, _, port = bootstrap.rpartition(":")
    values = []
    with SimpleConsumer(host, int(port)) as consumer:
        for partition, end in log_ends(bootstrap, topic).items():
            position = 0
            while position < end:
                request = FetchRequest(topic, partition.partition, position)
                fetched = consumer.fetch(request)
                values += [json.loads(record.value) for record in fetched]
                position = fetched.next_offset
    return values


def read_parquet(*directories: Path) -> list[dict[str, Any]]:
    """Return the rows of all Parquet files below some directories."""
    files = [str(file) for directory in directories for file in directory.rglob("*.parquet")]
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(files).to_table().to_pylist()
    return rows
