"""Understand Kafka's spelling of a command, where a flag names the action: `--describe --topic t`.

The arguments are put into the order of sub-commands, `describe --topic t`, before they are parsed.
"""

from collections.abc import Collection, Mapping, Sequence

import click

from clients.command_line.output import SHARED_NAMES


def sub_command_first(
    args: Sequence[str], names: Collection[str], actions: Mapping[str, str]
) -> list[str]:
    """Return the arguments with the sub-command first; an action flag becomes its sub-command."""
    # Shared options and their values may stand before the sub-command.
    start = 0
    while start < len(args) and args[start].partition("=")[0] in SHARED_NAMES:
        start += 1 if "=" in args[start] else 2

    # The name moves to the front; the options before it follow.
    if start < len(args) and args[start] in names:
        return [args[start], *args[:start], *args[start + 1 :]]

    # Without a name, the first flag that names an action decides.
    for position, arg in enumerate(args):
        if arg in actions:
            return [actions[arg], *args[:position], *args[position + 1 :]]

    return list(args)


class ActionGroup(click.Group):
    """A command group whose sub-commands can also be given as action flags."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were added."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the sub-command first, then parse."""
        actions = {f"--{name}": name for name in self.commands}
        return super().parse_args(ctx, sub_command_first(args, self.commands, actions))
