"""Build table items of plans and reassignments, and Kafka's sentences about them."""

from collections.abc import Iterable
from typing import Any

from broker.kbroker.reassign.plan import Plan, Status
from broker.kbroker.reassign.replica_places import format_places
from clients.command_line.output import Column, Failure, Listing, show

Item = dict[str, Any]


def format_broker_ids(value: Any) -> str:
    """Format broker ids as 0,1,2; none as -."""
    return ",".join(map(str, value or ())) or "-"


COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("STATE", 12),
    Column("REPLICAS", 12, text=format_broker_ids),
    Column("TARGET", 12, text=format_broker_ids),
    Column("ADDING", 8, text=format_broker_ids),
    Column("REMOVING", 8, text=format_broker_ids),
    Column("COPIED-BYTES", 14),
    Column("TOTAL-BYTES", 14),
    Column("LOG-DIRS", 10, text=format_places),
)
PLAN_COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("REPLICAS", 12, text=format_broker_ids),
    Column("TARGET", 12, text=format_broker_ids),
)


def build_plan_items(plan: Plan, current: Plan) -> list[Item]:
    """Build items of PLAN_COLUMNS."""
    return [
        {"topic": p.topic, "partition": p.partition, "replicas": current[p], "target": target}
        for p, target in sorted(plan.items())
    ]


def show_items(items: list[Item], failures: Iterable[Failure], output: str) -> None:
    """Print items of COLUMNS; exit 1 if there are failures."""
    rows = [item | {"state": str(item["state"])} for item in items]
    show(Listing("reassignment", COLUMNS, rows, list(failures)), output)


def format_status(item: Item) -> str:
    """Return the sentence of kafka-reassign-partitions.sh for a partition's status."""
    name = f"{item['topic']}-{item['partition']}"
    match item["state"]:
        case Status.COMPLETE:
            return f"Reassignment of partition {name} is complete."
        case Status.IN_PROGRESS:
            return f"Reassignment of partition {name} is still in progress."
        case Status.MISSING:
            return f"There is no partition {name}."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{format_broker_ids(item['replicas'])} rather than {format_broker_ids(item['target'])}."
    )
