"""Plans and moves as items of tables, and as Kafka's sentences."""

from collections.abc import Iterable
from typing import Any

from broker.kbroker.reassign.plan import Plan, Status
from broker.kbroker.reassign.replica_places import places_text
from clients.output import Column, Failure, Listing, show

Item = dict[str, Any]


def broker_ids(value: Any) -> str:
    """As in 0,1,2; - for none."""
    return ",".join(map(str, value or ())) or "-"


COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("STATE", 12),
    Column("REPLICAS", 12, text=broker_ids),
    Column("TARGET", 12, text=broker_ids),
    Column("ADDING", 8, text=broker_ids),
    Column("REMOVING", 8, text=broker_ids),
    Column("COPIED-BYTES", 14),
    Column("TOTAL-BYTES", 14),
    Column("LOG-DIRS", 10, text=places_text),
)
PLAN_COLUMNS = (
    Column("TOPIC", 15),
    Column("PARTITION", 10),
    Column("REPLICAS", 12, text=broker_ids),
    Column("TARGET", 12, text=broker_ids),
)


def plan_items(plan: Plan, current: Plan) -> list[Item]:
    """Items of PLAN_COLUMNS."""
    return [
        {"topic": p.topic, "partition": p.partition, "replicas": current[p], "target": target}
        for p, target in sorted(plan.items())
    ]


def show_items(items: list[Item], failures: Iterable[Failure], output: str) -> None:
    """Print items of COLUMNS; exit 1 if there are failures."""
    shown = [item | {"state": str(item["state"])} for item in items]
    show(Listing("reassignment", COLUMNS, shown, list(failures)), output)


def status_line(item: Item) -> str:
    """Kafka's sentence."""
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
        f"{broker_ids(item['replicas'])} rather than {broker_ids(item['target'])}."
    )
