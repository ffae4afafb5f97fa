"""`kgroup`: groups, offsets and messages.

Kafka's own spelling works as it is: `kgroup --bootstrap-server H:P --describe --group g` is put
into the order `describe --bootstrap-server H:P --group g` before anything is parsed.
"""

from collections.abc import Collection, Sequence

import click

from clients.output import SHARED_NAMES, CommandGroup, version_option

ROWS = {
    "list": ("clients.kgroup.list", "List groups, in ZooKeeper and with coordinators."),
    "describe": ("clients.kgroup.describe", "Who owns what, offsets and lag."),
    "consume": ("clients.kgroup.consume", "Print messages as a member of a group."),
    "produce": ("clients.kgroup.produce", "Send lines of standard input."),
    "export": ("clients.kgroup.export", "Committed offsets to a file."),
    "import": ("clients.kgroup.import_offsets", "Committed offsets from a file."),
    "verify-rebalance": (
        "clients.kgroup.verify_rebalance",
        "Whether every partition has one registered owner.",
    ),
    "migrate": ("clients.kgroup.migrate", "Move offsets between ZooKeeper and Kafka, proven."),
    "offsets": ("clients.kgroup.offsets", "The first or last offsets of a topic, or at a time."),
}

KAFKA_ACTIONS = {"--list": "list", "--describe": "describe"}


def expected_errors() -> tuple[type[Exception], ...]:
    """What ends a command with one line; imported late, since only a failing one pays for it."""
    from clients.errors import ClientError
    from clients.kgroup.formatter import MessageUnreadable
    from clients.kgroup.line_reader import LineError
    from groups.zookeeper.filters import InvalidTopicFilter
    from groups.zookeeper.member import (
        ConsumerIdInUse,
        ConsumerRebalanceFailed,
        StrategyConflict,
    )
    from offsets.store import CommitFailed
    from protocol.errors import ApiError
    from protocol.settings import SettingError
    from zk.session import ZkError
    from zk.znodes import ZnodeError

    return (
        ApiError,
        ClientError,
        CommitFailed,
        ConsumerIdInUse,
        ConsumerRebalanceFailed,
        InvalidTopicFilter,
        LineError,
        MessageUnreadable,
        SettingError,
        StrategyConflict,
        ZkError,
        ZnodeError,
    )


class KgroupCommand(CommandGroup):
    """The sub-commands, with shared options before them and Kafka's action flags allowed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the sub-command first, then parse."""
        return super().parse_args(ctx, sub_command_first(args, self.rows))


def sub_command_first(args: Sequence[str], names: Collection[str]) -> list[str]:
    """The arguments with the sub-command, or the one an action flag stands for, at the front."""
    start = 0
    while start < len(args) and args[start].partition("=")[0] in SHARED_NAMES:
        start += 1 if "=" in args[start] else 2
    if start < len(args) and args[start] in names:
        return [args[start], *args[:start], *args[start + 1 :]]
    for position, arg in enumerate(args):
        if arg in KAFKA_ACTIONS:
            return [KAFKA_ACTIONS[arg], *args[:position], *args[position + 1 :]]
    return list(args)


@click.group(
    cls=KgroupCommand,
    rows=ROWS,
    expected=expected_errors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  kgroup list --zookeeper localhost:2181
  kgroup describe analytics
  kgroup --bootstrap-server localhost:9092 --describe --group analytics --members""",
)
@version_option()
def main() -> None:
    """See and use consumer groups, whether they live in ZooKeeper or with a coordinator.

    Every sub-command takes -b/--bootstrap-server and --zookeeper, before or after its name.
    """


if __name__ == "__main__":
    main()
