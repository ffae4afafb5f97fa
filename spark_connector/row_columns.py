"""The columns of a row: those of Spark's Kafka source."""

from collections.abc import Collection

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key string, value binary>>",
}
"""Spark's type of each column, in the order of a row."""


def row_columns(include_headers: bool) -> tuple[str, ...]:
    """Return the columns of a whole row."""
    return tuple(name for name in TYPES if include_headers or name != "headers")


def schema(columns: Collection[str]) -> str:
    """Return the columns as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in TYPES.items() if name in columns)
