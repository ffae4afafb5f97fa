"""`--watch SEC`: print a listing again and again until Ctrl-C."""

import sys
import time
from collections.abc import Callable

import click

from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import is_screen
from clients.command_line.printing import say

watch_option = click.option(
    "--watch",
    type=FiniteRange(min=0.1),
    metavar="SEC",
    help="Show it again every so many seconds, until Ctrl-C.",
)


def repeat(seconds: float | None, print_once: Callable[[], None]) -> None:
    """Print once; with `seconds` until Ctrl-C, on a terminal each time in the place of the last.

    What fails is printed each time, and ends nothing: a broker may come back.
    """
    if seconds is None:
        print_once()
        return

    try:
        while True:
            if is_screen():
                click.clear()
            try:
                print_once()
            except click.exceptions.Exit:
                pass
            except click.ClickException as error:
                error.show()
            if not is_screen():
                say()
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        pass
