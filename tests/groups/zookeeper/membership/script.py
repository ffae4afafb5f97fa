"""One member, driven by hand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.membership import AUDIT_MS, DEBOUNCE_MS, decide
from groups.zookeeper.membership_state import Membership, MembershipSettings, Phase
from groups.zookeeper.registration import StaticSubscription
from protocol.topic_partition import TopicPartition

ME, OTHER = "g_a", "g_b"
SESSION = 0x77
BACKOFF_MS = 200
ALL = frozenset(TopicPartition("t", p) for p in range(4))
P0, P1, P2, P3 = sorted(ALL)


class Script:
    """A member driven by hand. `tell` returns the effects of one event."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0
        self.member = Membership(
            ME, MembershipSettings(rebalance_backoff_ms=BACKOFF_MS, **settings)
        )

    def tell(self, event: on.Event) -> list[do.Effect]:
        self.member, effects = decide(self.member, event, self.now_ms)
        self.member.check()
        return effects

    @property
    def round(self) -> int:
        return self.member.round

    def change(self, event: on.Event) -> list[do.Effect]:
        """Let a watch fire between rounds, and the burst of changes end."""
        (timer,) = self.tell(event)
        assert timer == self.debounce()
        return self.tell(on.ReadDue(self.round))

    def debounce(self) -> do.SetTimer:
        return do.SetTimer(on.ReadDue(self.round), self.now_ms + DEBOUNCE_MS, DEBOUNCE_MS)

    def audit(self) -> do.SetTimer:
        return do.SetTimer(on.Retry(self.round), self.now_ms + AUDIT_MS, AUDIT_MS // 10)

    def register(self) -> list[do.Effect]:
        assert self.tell(on.SessionEstablished(SESSION))[-1] == do.Register(SESSION)
        return self.tell(on.Registered(SESSION))

    def read_group(
        self, *members: str, streams: int = 1, partitions: int = 4, clustered: Sequence[str] = ()
    ) -> list[do.Effect]:
        """Give the member a reading of the group; each of `members` has `streams` of topic t."""
        snapshot = on.GroupSnapshot(
            {member: StaticSubscription({"t": streams}) for member in members},
            (),
            {"t": tuple(range(partitions))},
            strategies=dict.fromkeys(clustered, CLUSTERED),
        )
        return self.tell(on.GroupRead(self.round, snapshot))

    def read_owners(
        self, ours: Mapping[TopicPartition, str], foreign: Iterable[TopicPartition] = ()
    ) -> list[do.Effect]:
        owners = {p: on.Owner(thread, 0, SESSION) for p, thread in ours.items()}
        owners |= {p: on.Owner(f"{OTHER}-{p.partition}", 0, 0x99) for p in foreign}
        return self.tell(on.OwnersRead(self.round, owners))

    def settle_alone(self) -> None:
        """Let the member own all of t, alone in the group."""
        self.register()
        self.read_group(ME)
        self.read_owners({})
        self.tell(on.Claimed(self.round))
        self.tell(on.OffsetsFetched(self.round, dict.fromkeys(ALL, 5)))
        assert self.member.phase is Phase.SETTLED
        assert self.member.delivering.keys() == ALL


def kinds(effects: Iterable[do.Effect]) -> list[type[do.Effect]]:
    return [type(effect) for effect in effects]


def one(effects: Iterable[do.Effect], kind: type[Any]) -> Any:
    (only,) = [effect for effect in effects if isinstance(effect, kind)]
    return only
