"""`kbroker log`: logs where they are on disk, looked at and mended."""

from importlib import import_module

import click

ROWS = {
    "verify": ("broker.kbroker.log.verify", "Look for damage, changing nothing."),
    "describe": ("broker.kbroker.log.describe", "Segments, offsets and times of each partition."),
    "dirs": ("broker.kbroker.log.dirs", "What is in the brokers' log directories."),
    "cleaner": ("broker.kbroker.log.cleaner", "What compaction does, and has still to do."),
    "repair": ("broker.kbroker.log.repair", "Cut a damaged log by hand."),
}
"""Each command's module, which has it under the command's name, and its line in the help."""


class LogGroup(click.Group):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the rows."""
        return list(ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in ROWS:
            return None
        found = getattr(import_module(ROWS[cmd_name][0]), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The rows, without importing anything."""
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
    """Logs where they are on disk: on a running broker's, a stopped one's, or stock Kafka's."""
