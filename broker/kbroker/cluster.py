"""`kbroker cluster`: describe brokers, the controller and unhealthy partitions."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import click

from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.topic_rows import (
    MOST_NAMED,
    build_topic_item,
    is_unavailable,
    is_under_min_isr,
    is_under_replicated,
    unread_settings,
)
from clients.admin import Admin
from clients.admin.descriptions import ClusterDescription
from clients.command_line.finite_range import FiniteRange
from clients.command_line.output import (
    Column,
    Failure,
    Listing,
    Target,
    output_option,
    report,
    show,
    target_options,
)
from clients.command_line.printing import print_text, say
from clients.command_line.sessions import connected
from clients.errors import KgroupError, UnsupportedApi
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from zk.api import ZkError, ZkSession, get_if_there
from zk.znodes import BrokerId, ControllerEpoch

CLUSTER_COLUMNS = (
    Column("CLUSTER-ID"),
    Column("CONTROLLER"),
    Column("CONTROLLER-EPOCH"),
    Column("BROKERS"),
    Column("UNDER-REPLICATED"),
    Column("UNDER-MIN-ISR"),
    Column("OFFLINE"),
    Column("NOT-PREFERRED"),
    Column("REFUSING-LOG-DIRS"),
)

BROKER_COLUMNS = (
    Column("BROKER", 10),
    Column("HOST", 15),
    Column("PORT", 8),
    Column("RACK", 10),
    Column("CONTROLLER", 10),
    Column("LEADERS", 8),
    Column("PREFERRED", 9),
    Column("IMBALANCE", 9, text=lambda ratio: "-" if ratio is None else f"{ratio:.0%}"),
    Column("LISTENERS", text=lambda listeners: ",".join(listeners or ()) or "-"),
)

HOST_COLUMNS = (
    Column("HOST", 15),
    Column("BROKERS", text=lambda ids: ",".join(map(str, ids))),
    Column("RACK", 10),
    Column("CONTROLLER", 10),
    Column("LEADERS", 8),
    Column("PREFERRED", 9),
)

Item = dict[str, Any]


@click.group(
    "cluster",
    epilog="""\b
Example:
  kbroker cluster describe --zookeeper localhost:2181""",
)
def command() -> None:
    """Describe the cluster as a whole."""


@command.command(
    "describe",
    epilog="""\b
Example:
  kbroker cluster describe --zookeeper localhost:2181 --watch 2""",
)
@target_options
@output_option
@click.option(
    "--watch",
    type=FiniteRange(min=0.1),
    metavar="SEC",
    help="Repeat every SEC seconds until Ctrl-C.",
)
@click.option("--by-host", is_flag=True, help="A row for each host, with all its brokers.")
def describe(target: Target, output: str, watch: float | None, by_host: bool) -> None:
    """Show brokers, the controller, and unhealthy partitions.

    A broker should lead the partitions whose first replica it is. IMBALANCE is the share of them
    that other brokers lead. The controller's epoch and the brokers' listeners are read from
    ZooKeeper, and so need --zookeeper.
    """
    try:
        asyncio.run(print_cluster(target, output, watch, by_host))
    except KeyboardInterrupt:
        # That is the way to end a watch, as with those of kgroup.
        if watch is None:
            raise


async def print_cluster(target: Target, output: str, watch: float | None, by_host: bool) -> None:
    """Describe and print the cluster, once or every `watch` seconds."""
    async with connected(target, needs_zookeeper=False, waits_for_dead=False) as sessions:
        cluster = OverBrokers(sessions.admin)
        while True:
            failures: list[Failure] = []
            if sessions.zk_failure is not None:
                failures.append(Failure.of("ZooKeeper", sessions.zk_failure))
            item = await describe_cluster(cluster, sessions.zk, failures)
            # Of partitions that are not shown nobody knows whether they are healthy.
            failures += await cluster.find_hidden_topics()
            print_item(item, output, by_host, failures if watch is None else ())
            if watch is None:
                return

            report(failures)
            say()
            await asyncio.sleep(watch)


def print_item(item: Item, output: str, by_host: bool, failures: Sequence[Failure] = ()) -> None:
    """Print the cluster in one of the formats; a table comes after the unhealthy partitions.

    Exits with 1 if it has failures.
    """
    hosts = Listing("host", HOST_COLUMNS, host_items(item["brokers"]), failures)
    if output == "json":
        show(hosts if by_host else Listing("cluster", CLUSTER_COLUMNS, [item], failures), output)
        return

    # A CSV file has the rows alone.
    if output != "csv":
        print_text(format_summary(item))
    brokers = Listing("cluster", BROKER_COLUMNS, item["brokers"], failures)
    show(hosts if by_host else brokers, output)


def host_items(brokers: Sequence[Item]) -> list[Item]:
    """Return an item for each host, from those of its brokers."""
    by_host: dict[str, list[Item]] = {}
    for broker in brokers:
        by_host.setdefault(broker["host"], []).append(broker)

    return [
        {
            "host": host,
            "brokers": [broker["broker"] for broker in its_brokers],
            "rack": its_brokers[0]["rack"],
            "controller": any(broker["controller"] for broker in its_brokers),
            "leaders": sum(broker["leaders"] for broker in its_brokers),
            "preferred": sum(broker["preferred"] for broker in its_brokers),
        }
        for host, its_brokers in sorted(by_host.items())
    ]


async def describe_cluster(
    cluster: OverBrokers, zk: ZkSession | None, failures: list[Failure]
) -> Item:
    """Describe the cluster as one item of CLUSTER_COLUMNS, without what ZooKeeper does not tell."""
    # One response describes brokers, controller and partitions at the same moment.
    description, topics = await cluster.admin.describe_all()
    told = await cluster.describe_min_insync_replicas(topics)
    min_isrs = {topic: min_isr for topic, min_isr in told.items() if isinstance(min_isr, int)}
    unread = {topic: error for topic, error in told.items() if isinstance(error, KgroupError)}
    failures += unread_settings(unread)
    ids = [broker.node_id for broker in description.brokers]
    refusing = await find_refusing_log_dirs(cluster.admin, ids, failures)
    partitions = [
        partition
        for topic in topics.values()
        for partition in build_topic_item(topic, {}, min_isr=min_isrs.get(topic.name))["partitions"]
    ]

    # Brokers report neither the controller's epoch nor all listeners.
    epoch: int | None = None
    listeners: dict[int, list[str]] = {}
    if zk is not None:
        try:
            epoch = await read_controller_epoch(zk)
            listeners = await read_listeners(zk, ids)
            failures += _unregistered(ids, listeners)
        except ZkError as error:
            failures.append(Failure.of("ZooKeeper", error))
    return build_cluster_item(description, epoch, partitions, listeners, refusing)


def _unregistered(brokers: Sequence[int], registered: Collection[int]) -> list[Failure]:
    """Return a failure for each broker that ZooKeeper does not know.

    It may serve for long, where ZooKeeper refuses its session, and metadata name it meanwhile.
    """
    text = "has no session with ZooKeeper: nothing that needs the controller is done for it"
    # Or all seems to be well while nothing can fail over (fault strangers-54).
    return [
        Failure(f"broker {broker}", "NotRegistered", text)
        for broker in brokers
        if broker not in registered
    ]


async def find_refusing_log_dirs(
    admin: Admin, brokers: Sequence[int], failures: list[Failure]
) -> list[str] | None:
    """Return the log directories that take no writes, as `broker 0: PATH (full)`.

    None if none is known, and a broker did not tell. One that cannot be asked is a failure: it is
    named in metadata until its session with ZooKeeper ends.
    """
    describe = partial(admin.describe_log_dirs, with_replicas=False)
    told = await asyncio.gather(*map(describe, brokers), return_exceptions=True)
    refusing: list[str] = []
    are_all_known = True
    for broker, log_dirs in zip(brokers, told, strict=True):
        # Brokers before Kafka 1.0 do not know their directories, and none is told to who may not
        # describe the cluster.
        if isinstance(log_dirs, UnsupportedApi) or not log_dirs:
            are_all_known = False
            continue
        if isinstance(log_dirs, KgroupError):
            are_all_known = False
            failures.append(Failure.of(f"broker {broker}", log_dirs))
            continue
        if isinstance(log_dirs, BaseException):
            raise log_dirs
        for path, log_dir in log_dirs.items():
            if log_dir.error is not ErrorCode.NONE:
                refusing.append(f"broker {broker}: {path} (off-line)")
            elif log_dir.is_full:
                refusing.append(f"broker {broker}: {path} (full)")
    return refusing if refusing or are_all_known else None


async def read_controller_epoch(zk: ZkSession) -> int | None:
    """Return the controller epoch; None before the first controller."""
    node = await get_if_there(zk, ControllerEpoch.path())
    return ControllerEpoch.decode(node[0]).epoch if node else None


async def read_listeners(zk: ZkSession, brokers: Sequence[int]) -> dict[int, list[str]]:
    """Return the endpoints of each registered broker, as `NAME://host:port`."""
    paths = [BrokerId.path(broker) for broker in brokers]
    nodes = await zk.get_many(paths)
    return {
        broker: [str(endpoint) for endpoint in BrokerId.decode(node[0], path).endpoints]
        for broker, path, node in zip(brokers, paths, nodes, strict=True)
        # A broker may have left since the brokers were asked.
        if node is not None
    }


def build_cluster_item(
    cluster: ClusterDescription,
    epoch: int | None,
    partitions: list[Item],
    listeners: Mapping[int, list[str]] | None = None,
    refusing: Sequence[str] | None = None,
) -> Item:
    """Build the cluster's item from all partitions, which `build_topic_item` made."""

    def names(partitions: list[Item]) -> list[str]:
        return [str(TopicPartition(p["topic"], p["partition"])) for p in partitions]

    # The preferred leader is the first replica. A partition without a leader is off-line instead.
    not_preferred = [
        p for p in partitions if not is_unavailable(p) and p["leader"] != p["replicas"][0]
    ]

    # Those of settings that may not be read are not known.
    under_min_isr: list[str] | None = names([p for p in partitions if is_under_min_isr(p)])
    if not under_min_isr and any("min_isr" not in p for p in partitions):
        under_min_isr = None

    # Partitions of each broker: led, preferred, and preferred but led by others.
    led = Counter(p["leader"] for p in partitions)
    preferred = Counter(p["replicas"][0] for p in partitions)
    led_by_others = Counter(p["replicas"][0] for p in not_preferred)

    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
        "controller_epoch": epoch,
        "brokers": [
            {
                "broker": (broker_id := broker.node_id),
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker_id == cluster.controller_id,
                "leaders": led[broker_id],
                "preferred": preferred[broker_id],
                # A broker that is nobody's first replica has no share.
                "imbalance": led_by_others[broker_id] / preferred[broker_id]
                if preferred[broker_id]
                else None,
                "listeners": (listeners or {}).get(broker_id),
            }
            for broker in cluster.brokers
        ],
        "under_replicated": names([p for p in partitions if is_under_replicated(p)]),
        "under_min_isr": under_min_isr,
        "offline": names([p for p in partitions if is_unavailable(p)]),
        "not_preferred": names(not_preferred),
        "refusing_log_dirs": refusing,
    }


SUMMARY_LINES = (
    ("Under-replicated partitions", "under_replicated"),
    ("Under-min-ISR partitions", "under_min_isr"),
    ("Offline partitions", "offline"),
    ("Not led by the preferred leader", "not_preferred"),
    ("Log directories that refuse writes", "refusing_log_dirs"),
)
"""A title and the key of the names behind it."""


def format_summary(item: Item) -> str:
    """Return the lines above the table of brokers."""
    controller = "none" if item["controller"] is None else f"broker {item['controller']}"
    epoch = "" if item["controller_epoch"] is None else f", epoch {item['controller_epoch']}"
    lines = [f"Cluster: {item['cluster_id'] or '-'}", f"Controller: {controller}{epoch}"]

    for title, key in SUMMARY_LINES:
        names = item[key]
        if names is None:
            lines.append(f"{title}: not known")
            continue
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        lines.append(f"{title}: {', '.join(names[:MOST_NAMED]) or 'none'}{more}")
    return "\n".join([*lines, ""])
