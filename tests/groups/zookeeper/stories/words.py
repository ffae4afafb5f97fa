"""Events and effects of a member in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.stories.figures import GROUP


def in_words(what: Any) -> str | None:
    words = _WORDS.get(type(what))
    return words(what) if words else None


def _names(partitions: Iterable[TopicPartition]) -> str:
    """Return `t-0…3, u-1`: consecutive partitions are joined."""
    runs: list[list[TopicPartition]] = []
    for partition in sorted(partitions):
        last = runs[-1][-1] if runs else None
        if last and (last.topic, last.partition + 1) == (partition.topic, partition.partition):
            runs[-1].append(partition)
        else:
            runs.append([partition])
    return ", ".join(
        f"{run[0]}…{run[-1].partition}" if len(run) > 1 else str(run[0]) for run in runs
    )


def _members(snapshot: on.GroupSnapshot) -> str:
    return ", ".join(name.removeprefix(f"{GROUP}_") for name in sorted(snapshot.members))


_WORDS: dict[type[Any], Callable[[Any], str | None]] = {
    on.SessionEstablished: lambda e: f"is connected, in session {e.session_id}",
    on.Suspended: lambda e: "has no connection to ZooKeeper",
    on.LeaseEnded: lambda e: "has had no connection for two thirds of its session",
    on.SessionLost: lambda e: "learns that its session has ended, and with it all ownership",
    on.SessionClosed: lambda e: "learns that its session is closed, and is out for good",
    on.Registered: lambda e: "is registered",
    on.RegistrationFailed: lambda e: f"could not register: {e.reason}",
    on.GroupChanged: lambda e: "sees that the group has changed",
    on.TopicsChanged: lambda e: "sees that topics have changed",
    on.BrokersChanged: lambda e: "sees that brokers have changed",
    on.OwnerChanged: lambda e: "sees a change of the owner that it waits for",
    on.GroupRead: lambda e: f"round {e.round}: sees {_members(e.snapshot)}",
    on.GroupUnreadable: lambda e: f"round {e.round}: {e.problem.text}",
    on.Claimed: lambda e: f"round {e.round}: its claim stands",
    on.ClaimFailed: lambda e: f"round {e.round}: its claim came too late",
    on.RoundFailed: lambda e: f"round {e.round} failed: {e.reason}",
    on.ReleaseFailed: lambda e: f"round {e.round}: could not release: {e.reason}",
    on.Retry: lambda e: "looks again",
    on.Shutdown: lambda e: "is asked to leave",
    do.Register: lambda e: "registers",
    do.ReleaseOwners: lambda e: f"releases {_names(e.partitions)}",
    do.ClaimOwners: lambda e: f"claims {_names({*e.create, *e.move})}",
    do.WatchOwners: lambda e: f"waits for {_names(e.partitions)}",
    do.StopFetchers: lambda e: f"stops {_names(e.partitions)}" if e.partitions else None,
    do.CommitPositions: lambda e: f"commits {_names(e.partitions)}" if e.partitions else None,
    do.FetchOffsets: lambda e: f"asks for the offsets of {_names(e.partitions)}",
    do.StartFetchers: lambda e: f"delivers {_names(e.partitions)}",
    do.MoveFetchers: lambda e: f"moves {_names(e.threads)} to other streams",
    do.LeaveGroup: lambda e: "leaves the group",
}
