"""Read the files of partitions that `kbroker reassign` and `elect` take, in Kafka's JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from broker.kbroker.reassign.plan import ReassignmentError

T = TypeVar("T")


def read_plan_file(path: Path, read: Callable[[str], T]) -> T:
    """Return what `read` makes of the file's text. Raises UsageError, ReassignmentError, OSError.

    The first two name the file.
    """
    try:
        return read(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path}: not UTF-8: {error}") from None
    except ReassignmentError as error:
        raise ReassignmentError(f"{path}: {error}") from None
