"""Understand Kafka's spelling of a command, where a flag names the action: `--describe --topic t`.

The arguments are put into the order of sub-commands, `describe --topic t`, before they are parsed.
"""

from collections.abc import Mapping, Sequence

import click

from clients.command_line.command_group import SuggestingGroup
from clients.command_line.output import SHARED_NAMES


def sub_command_first(args: Sequence[str], actions: Mapping[str, str]) -> list[str]:
    """Return the arguments with the sub-command first; an action flag becomes its sub-command."""
    # Shared options and their values may stand before the sub-command.
    start = 0
    while start < len(args) and args[start].partition("=")[0] in SHARED_NAMES:
        start += 1 if "=" in args[start] else 2

    # The name moves to the front, with the words behind it, for the next may be a sub-command of
    # its own. The options before it follow. A name that is not known is for click to refuse.
    if start < len(args) and not args[start].startswith("-"):
        end = start
        while end < len(args) and not args[end].startswith("-"):
            end += 1
        return [*args[start:end], *args[:start], *args[end:]]

    # Without a name, the first flag that names an action decides.
    for position, arg in enumerate(args):
        if arg in actions:
            return [actions[arg], *args[:position], *args[position + 1 :]]

    return list(args)


class ActionGroup(SuggestingGroup):
    """A command group whose sub-commands can also be given as action flags."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the sub-command first, then parse."""
        actions = {f"--{name}": name for name in self.commands}
        return super().parse_args(ctx, sub_command_first(args, actions))
