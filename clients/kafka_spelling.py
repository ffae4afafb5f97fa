"""Kafka's own spelling of a command, in which a flag says what to do: `--describe --topic t`.

It is put into the order of sub-commands, `describe --topic t`, before anything is parsed.
"""

from collections.abc import Collection, Mapping, Sequence

import click

from clients.output import SHARED_NAMES


def sub_command_first(
    args: Sequence[str], names: Collection[str], actions: Mapping[str, str]
) -> list[str]:
    """The arguments with the sub-command, or the one an action flag stands for, at the front."""
    start = 0
    while start < len(args) and args[start].partition("=")[0] in SHARED_NAMES:
        start += 1 if "=" in args[start] else 2
    if start < len(args) and args[start] in names:
        return [args[start], *args[:start], *args[start + 1 :]]
    for position, arg in enumerate(args):
        if arg in actions:
            return [actions[arg], *args[:position], *args[position + 1 :]]
    return list(args)


class ActionGroup(click.Group):
    """Sub-commands in the order they were added, each of which is an action flag as well."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were added."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the sub-command first, then parse."""
        actions = {f"--{name}": name for name in self.commands}
        return super().parse_args(ctx, sub_command_first(args, self.commands, actions))
