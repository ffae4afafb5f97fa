"""`kbroker users`: list, create and delete the users that log in by SCRAM.

A password is asked for, or read from standard input; an argument would be seen in the list of
processes.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence

import click

from broker.kbroker.open_cluster import open_cluster
from clients.admin.descriptions import ScramDeletion, ScramUpsertion, UserChange
from clients.command_line.interrupts import heeding_interrupts
from clients.command_line.kafka_spelling import ActionGroup
from clients.command_line.output import (
    Column,
    Listing,
    Target,
    output_option,
    show,
    show_verdicts,
    target_options,
)
from clients.command_line.printing import plain
from protocol.errors import ApiError, ErrorCode
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.sasl.iterations import DEFAULT_ITERATIONS, MAX_STORED_ITERATIONS, MIN_ITERATIONS
from protocol.sasl.scram import (
    SCRAM_MECHANISMS,
)

COLUMNS = (Column("USER", 15), Column("MECHANISM", 15), Column("ITERATIONS"))


@click.group(
    "users",
    cls=ActionGroup,
    epilog="""\b
Examples:
  kbroker users create alice
  kbroker users create broker --password-stdin --zookeeper localhost:2181 < password
  kbroker users list""",
)
def command() -> None:
    """List, create and delete the users that log in by SCRAM.

    The brokers do the work. With --zookeeper, and no --bootstrap-server, on the command line the
    command writes to ZooKeeper itself: so the user by which brokers log in at each other is there
    before the first of them starts.
    """


# --- list -----------------------------------------------------------------------------------------


@command.command(
    "list",
    epilog="""\b
Example:
  kbroker users list -o json""",
)
@target_options
@output_option
def list_users(target: Target, output: str) -> None:
    """List the users, with a row for each mechanism by which one can log in."""

    async def describe() -> list[dict[str, object]]:
        async with open_cluster(target, waits_for_dead=False) as cluster:
            users = await cluster.describe_users()
        return [
            {"user": user, "mechanism": info.mechanism, "iterations": info.iterations}
            for user, infos in sorted(users.items())
            for info in infos
        ]

    show(Listing("users", COLUMNS, asyncio.run(describe())), output)


# --- create ---------------------------------------------------------------------------------------


@command.command(
    "create",
    epilog="""\b
Examples:
  kbroker users create alice
  kbroker users create alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512""",
)
@target_options
@output_option
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(SCRAM_MECHANISMS)),
    multiple=True,
    default=(SCRAM_SHA_512,),
    show_default=True,
    help="By which the user can log in; may be repeated.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_STORED_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    help="More make each guess of a password more expensive, and each login of a client.",
)
@click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
)
def create(
    target: Target,
    output: str,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_stdin: bool,
) -> None:
    """Create a user, or give it a new password. Other mechanisms of the user stay as they are."""
    password = read_password(name, password_stdin)
    changes = [
        ScramUpsertion(name, mechanism, password, iterations)
        for mechanism in dict.fromkeys(mechanisms)
    ]
    change_users(target, output, changes, f"Created user {{}} ({', '.join(mechanisms)}).")


def read_password(name: str, from_stdin: bool) -> str:
    """Ask for the password of a user, or read it. Raises UsageError if there is none."""
    if not from_stdin:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask for a password: --password-stdin")
        return str(
            click.prompt(
                f"Password of {plain(name)}", hide_input=True, confirmation_prompt=True, err=True
            )
        )

    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("--password-stdin: the first line of standard input is empty")
    return password


# --- delete ---------------------------------------------------------------------------------------


@command.command(
    "delete",
    epilog="""\b
Example:
  kbroker users delete alice""",
)
@target_options
@output_option
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(SCRAM_MECHANISMS)),
    multiple=True,
    help="By which the user can no longer log in; may be repeated.  [default: all]",
)
def delete(target: Target, output: str, name: str, mechanisms: tuple[str, ...]) -> None:
    """Delete the passwords of a user. Its quotas stay, and so do its open connections."""
    if not mechanisms:
        mechanisms = asyncio.run(find_mechanisms(target, name))
    changes = [ScramDeletion(name, mechanism) for mechanism in dict.fromkeys(mechanisms)]
    change_users(target, output, changes, "Deleted user {}.")


async def find_mechanisms(target: Target, name: str) -> tuple[str, ...]:
    """Return the mechanisms by which a user can log in. Raises ApiError if there are none."""
    async with open_cluster(target) as cluster:
        infos = (await cluster.describe_users()).get(name, ())
    if not infos:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name} does not exist")
    return tuple(info.mechanism for info in infos)


# --- both -----------------------------------------------------------------------------------------


def change_users(target: Target, output: str, changes: Sequence[UserChange], sentence: str) -> None:
    """Change users, and print `sentence` for each one that was; exit 1 at a failure."""

    async def change() -> Mapping[str, ApiError | None]:
        async with open_cluster(target) as cluster:
            with heeding_interrupts():
                return await cluster.change_users(changes)

    show_verdicts("users", "USER", asyncio.run(change()), sentence, output)
