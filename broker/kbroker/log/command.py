"""`kbroker log`: check, describe and repair logs on disk."""

from importlib import import_module

import click

from clients.command_line.command_group import SuggestingGroup

ROWS = {
    "verify": ("broker.kbroker.log.verify", "Look for damage; changes nothing."),
    "describe": ("broker.kbroker.log.describe", "Show segments, offsets and times of logs."),
    "dirs": ("broker.kbroker.log.dirs", "List the replicas in the brokers' log directories."),
    "cleaner": ("broker.kbroker.log.cleaner", "Show what compaction did and has still to do."),
    "repair": ("broker.kbroker.log.repair", "Truncate a damaged log by hand."),
}
"""Sub-command -> its module, with a function of the same name, and its line in the help."""


class LogGroup(SuggestingGroup):
    """A group that imports a sub-command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the sub-commands in the order of ROWS."""
        return list(ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the sub-command's module; None for an unknown name."""
        if cmd_name not in ROWS:
            return None

        # Each module has a command of the same name.
        sub_command = getattr(import_module(ROWS[cmd_name][0]), cmd_name)
        assert isinstance(sub_command, click.Command)
        return sub_command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lines of ROWS without importing a sub-command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in ROWS.items()])


@click.group(
    "log",
    cls=LogGroup,
    epilog="""\b
Examples:
  kbroker log verify /var/lib/kafka
  kbroker log describe flights --log-dirs /var/lib/kafka""",
)
def command() -> None:
    """Check, describe and repair logs on disk, of our brokers or of stock Kafka.

    All commands but repair only read, and the broker may be running.
    """
