"""The command `kgroup`: groups, offsets and messages.

Kafka's own spelling works too: `kgroup --bootstrap-server H:P --describe --group g` is put into
the order `describe --bootstrap-server H:P --group g` before it is parsed.
"""

import logging
from typing import Any

import click

from clients.command_line.command_group import CommandGroup, version_option
from clients.command_line.kafka_spelling import sub_command_first
from clients.command_line.printing import plain

ROWS = {
    "list": ("clients.kgroup.list", "List groups, in ZooKeeper and with coordinators."),
    "describe": ("clients.kgroup.describe", "Show the owners, offsets and lag of groups."),
    "consume": ("clients.kgroup.consume", "Print messages as a member of a group."),
    "produce": ("clients.kgroup.produce", "Send the lines of standard input as messages."),
    "reset": ("clients.kgroup.reset", "Set a group's offsets, or show what that would do."),
    "undo": ("clients.kgroup.undo", "Take a reset back."),
    "journal": ("clients.kgroup.journal", "Show what resets have written."),
    "copy": ("clients.kgroup.copy_group", "Give a group the offsets of another one."),
    "rename": ("clients.kgroup.rename", "Copy a group under another name, and delete it."),
    "delete": ("clients.kgroup.delete", "Delete groups and all their committed offsets."),
    "delete-offsets": ("clients.kgroup.delete_offsets", "Delete committed offsets of a group."),
    "events": ("clients.kgroup.events", "Show why a group rebalanced, and what to do about it."),
    "health": ("clients.kgroup.health", "Say which groups do not consume, by their commits."),
    "at-risk": ("clients.kgroup.at_risk", "Show offsets that expire, and records lost unread."),
    "doctor": ("clients.kgroup.doctor", "Look at __consumer_offsets: cleaning, replicas, load."),
    "history": ("clients.kgroup.history", "Show the commits of a group, and who made them."),
    "record": ("clients.kgroup.record", "Write what groups commit to a file."),
    "serve": ("clients.serve.command", "Serve metrics, JSON and a page of all groups."),
    "kick": ("clients.kgroup.kick", "Remove members from a group at its coordinator."),
    "export": ("clients.kgroup.export", "Write committed offsets to a file."),
    "import": ("clients.kgroup.import_offsets", "Commit offsets from a file."),
    "verify-rebalance": (
        "clients.kgroup.verify_rebalance",
        "Check that every partition has one registered owner.",
    ),
    "simulate": ("clients.kgroup.simulate", "Show who would get what if members came or went."),
    "migrate": ("clients.kgroup.migrate", "Move a group's offsets between ZooKeeper and Kafka."),
    "offsets": ("clients.kgroup.offsets", "Show the offsets of a topic: last, first or by time."),
    "perf": (
        "clients.kgroup.perf.command",
        "Measure how fast a cluster produces, consumes and commits.",
    ),
    "top": ("clients.kgroup.top", "Watch the groups with the largest lag."),
    "clusters": ("clients.kgroup.clusters", "List the clusters that --cluster can name."),
    "completion": (
        "clients.kgroup.completion_script",
        "Print a shell's script to complete names.",
    ),
}

KAFKA_ACTIONS = {
    "--list": "list",
    "--describe": "describe",
    "--delete": "delete",
    "--delete-offsets": "delete-offsets",
    "--reset-offsets": "reset",
}


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that end a command with one line, without a traceback.

    They are imported here because only a command that fails needs them.
    """
    from clients.errors import KgroupError
    from clients.kgroup.formatter import MessageUnreadable
    from clients.kgroup.line_reader import LineError
    from clients.watching.history_file import HistoryUnreadable
    from groups.zookeeper.filters import InvalidTopicFilter
    from protocol.errors import ApiError
    from protocol.primitives import WireError
    from zk.api import ZkError
    from zk.znodes import ZnodeError

    return (
        KgroupError,
        WireError,  # a number that no request has room for
        ApiError,
        ZkError,
        ZnodeError,
        InvalidTopicFilter,
        HistoryUnreadable,
        LineError,
        MessageUnreadable,
    )


def misuse() -> tuple[type[Exception], ...]:
    """Return those expected errors that the command line causes: bad settings and patterns."""
    from groups.zookeeper.filters import InvalidTopicFilter
    from protocol.settings import SettingError

    return InvalidTopicFilter, SettingError


MEMBER_LOG = "groups.consumer.member"


class OneLine(logging.Formatter):
    """Formats a log record as one line, like our own errors: no time, no traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the level, the message, and the exception's text."""
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.levelname.lower()}: {record.getMessage()}"

        # Messages of libraries may have several lines.
        return plain(" ".join((f"{text}: {error}" if error else text).split()))


def log_handler() -> logging.Handler:
    """Return what prints log records of the libraries on stderr, but for what a command says."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    # What ends a member is raised from its streams too, and the command prints it then.
    handler.addFilter(lambda record: record.name != MEMBER_LOG or record.levelno < logging.ERROR)
    return handler


class KgroupCommand(CommandGroup):
    """The sub-commands. Shared options may stand before them, and Kafka's action flags work."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; log records of the libraries go to stderr."""
        logging.basicConfig(handlers=[log_handler()], level=logging.WARNING)
        return super().invoke(ctx)

    def find_near(self, ctx: click.Context, name: str) -> str | None:
        """Return the sub-command that somebody means; the name may be that of Kafka's tool."""
        # reset-offsets is nearer to another one, which deletes (fault strangers-181).
        return KAFKA_ACTIONS.get(f"--{name}") or super().find_near(ctx, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the sub-command first, then parse."""
        return super().parse_args(ctx, sub_command_first(args, KAFKA_ACTIONS))


@click.group(
    cls=KgroupCommand,
    rows=ROWS,
    expected=expected_errors,
    misuse=misuse,
    epilog="""\b
Examples:
  kgroup list --zookeeper localhost:2181
  kgroup describe analytics
  kgroup --bootstrap-server localhost:9092 --describe --group analytics --members""",
)
@version_option()
def main() -> None:
    """Inspect and use consumer groups, in ZooKeeper and with Kafka's coordinators.

    Every sub-command takes -b/--bootstrap-server, --zookeeper and -c/--cluster, before or after its
    name.
    """


if __name__ == "__main__":
    main()
