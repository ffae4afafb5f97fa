"""`kbroker`: run brokers or whole clusters, and look after their topics and replicas."""

import click

from clients.command_line.command_group import CommandGroup, version_option

ROWS = {
    "dev": ("broker.kbroker.dev", "Run a whole cluster on this machine."),
    "start": ("broker.kbroker.start", "Run one broker from a server.properties."),
    "zookeeper": ("broker.kbroker.zookeeper", "Run the embedded ZooKeeper alone."),
    "topics": ("broker.kbroker.topics", "List, create, describe, alter and delete topics."),
    "configs": ("broker.kbroker.configs", "Describe and alter settings of topics and brokers."),
    "quotas": ("broker.kbroker.quotas", "Describe and alter quotas of users and clients."),
    "users": ("broker.kbroker.users", "List, create and delete users of SCRAM."),
    "acls": ("broker.kbroker.acls", "List, add and remove ACLs."),
    "transactions": ("broker.kbroker.transactions", "See transactions, abort those that hang."),
    "reassign": ("broker.kbroker.reassign.command", "Move partitions to other brokers."),
    "elect": ("broker.kbroker.elect", "Elect leaders of partitions."),
    "cluster": ("broker.kbroker.cluster", "Show brokers, controller and unhealthy partitions."),
    "shutdown": ("broker.kbroker.shutdown", "Move all leaders off a broker."),
    "dump": ("broker.kbroker.dump.command", "Print log files and indexes as text."),
    "log": ("broker.kbroker.log.command", "Check, describe and repair logs on disk."),
    "completion": (
        "clients.kgroup.completion_script",
        "Print a shell's script to complete names.",
    ),
}
"""Sub-command -> its module and its line in the help."""


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that end a command with one line.

    They are imported late, because only a failing command needs them.
    """
    from broker.cluster.registration import AlreadyRegistered
    from broker.kbroker.local_cluster import LocalClusterError
    from broker.kbroker.reassign.plan import ReassignmentError
    from broker.kbroker.security_folder import SecurityUnavailable
    from broker.kbroker.supervisor import BrokerNeverReady
    from broker.server import BrokerStopped
    from clients.errors import ClientError
    from core_log.log_manager import LogDirectoryError
    from core_log.meta_properties import InconsistentMetaProperties
    from groups.zookeeper.filters import InvalidTopicFilter
    from protocol.errors import ApiError
    from protocol.primitives import WireError
    from protocol.records.compression import CompressionUnavailable
    from protocol.settings import SettingError
    from zk.api import ZkError
    from zk.embedded import ZkServerError
    from zk.znodes import ZnodeError

    return (
        WireError,  # a number that no request has room for
        AlreadyRegistered,
        ApiError,
        BrokerStopped,
        ClientError,
        CompressionUnavailable,
        InconsistentMetaProperties,
        InvalidTopicFilter,
        LogDirectoryError,
        BrokerNeverReady,
        LocalClusterError,
        ReassignmentError,
        SecurityUnavailable,
        SettingError,
        ZkError,
        ZkServerError,
        ZnodeError,
    )


def misuse() -> tuple[type[Exception], ...]:
    """Return the expected errors that are mistakes in the command line."""
    from groups.zookeeper.filters import InvalidTopicFilter

    return (InvalidTopicFilter,)


@click.group(
    cls=CommandGroup,
    rows=ROWS,
    expected=expected_errors,
    misuse=misuse,
    epilog="""\b
Examples:
  kbroker dev
  kbroker topics create flights --partitions 6 --replication-factor 1
  kbroker start server.properties --override log.dirs=/var/lib/kafka""",
)
@version_option()
def main() -> None:
    """Run brokers, and look after their topics and replicas."""


if __name__ == "__main__":
    main()
