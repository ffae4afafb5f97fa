"""Complete names of groups and topics from the cluster, as a shell asks for them.

A shell must not wait, and has no place for errors: after COMPLETION_S, or after any failure, there
is nothing to complete.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from clients.command_line.output import Target, target_of
from clients.command_line.sessions import connected
from clients.groups.group_reader import GroupReader
from protocol.frozen import frozen

COMPLETION_S = 1.0

GROUP_PARAMETERS = {"group", "groups", "more_groups"}
GROUP_METAVARS = {"GROUP", "FROM"}
TOPIC_PARAMETERS = {"topic", "topics"}


async def group_names(target: Target) -> list[str]:
    """Return all groups of both kinds."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        return [name.group for name in await GroupReader(sessions).names()]


async def topic_names(target: Target) -> list[str]:
    """Return all topics."""
    async with connected(target, asks_brokers=True, waits_for_dead=False) as sessions:
        return await sessions.admin.list_topics()


@frozen
class ClusterNames(click.ParamType):  # type: ignore[type-arg]
    """The type of a parameter while a shell completes it."""

    read: Callable[[Target], Awaitable[list[str]]]
    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with `incomplete`; none after a failure."""
        names: list[str] = []

        def ask() -> None:
            # Whatever goes wrong: a shell would print it in the middle of a command line.
            try:
                target = target_of(ctx, ctx.params)
                names.extend(asyncio.run(_within_limit(self.read(target))))
            except Exception:
                logging.getLogger(__name__).debug("nothing to complete", exc_info=True)

        # Libraries warn on stderr of brokers that do not answer.
        logging.disable()
        # A thread can be left behind, where a session takes long to close or a name to resolve.
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(COMPLETION_S + 0.1)

        # The protocol of shells has one name a line.
        return [
            CompletionItem(name)
            for name in list(names)
            if name.startswith(incomplete) and name.isprintable()
        ]


async def _within_limit(names: Awaitable[list[str]]) -> list[str]:
    async with asyncio.timeout(COMPLETION_S):
        return await names


def complete_names(command: click.Command) -> None:
    """Have a command's parameters for groups and topics, and its sub-commands', ask the cluster.

    For completion alone: the parameters lose the types by which they are read.
    """
    if isinstance(command, click.Group):
        for sub_command in command.commands.values():
            complete_names(sub_command)

    for param in command.params:
        if _names_groups(param):
            param.type = ClusterNames(group_names)
        elif _names_topics(command, param):
            param.type = ClusterNames(topic_names)


def _names_groups(param: click.Parameter) -> bool:
    metavar: Any = getattr(param, "metavar", None)
    return param.name in GROUP_PARAMETERS or metavar in GROUP_METAVARS


def _names_topics(command: click.Command, param: click.Parameter) -> bool:
    if param.name in TOPIC_PARAMETERS or "--topic" in param.opts:
        return True

    # `kbroker topics describe NAME`. A topic that is to be created has a name of its own.
    return (
        isinstance(param, click.Argument)
        and param.name in {"name", "names"}
        and command.name != "create"
    )
