"""The option that says which records count: all, or those of committed transactions."""

from collections.abc import Callable
from typing import Any

import click

LEVELS = ("read_uncommitted", "read_committed")
"""By their numbers in requests."""


def isolation_option(text: str, default: str | None = None) -> Callable[[Any], Any]:
    """Return the option for a command, with its help; Kafka spells it --isolation-level."""
    return click.option(
        "--isolation",
        "--isolation-level",
        "isolation",
        type=click.Choice(LEVELS),
        default=default,
        help=text,
    )
