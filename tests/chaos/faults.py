"""What can go wrong: each fault begins, lasts, and ends; a seed chooses whom and for how long."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from clients.admin import PREFERRED, Admin, NewTopic
from clients.errors import ClientError
from clients.producer.producer import Producer
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition
from tests.chaos.cluster import BROKERS, SESSION_TIMEOUT_S, Cluster
from tests.chaos.load import PROMPT, Member
from tests.chaos.network import CLIENTS, ZOOKEEPER, Pair, both_ways, broker
from tests.chaos.stock_group import StockGroup

SHORT_S = (0.3, SESSION_TIMEOUT_S * 0.6)
LONG_S = (SESSION_TIMEOUT_S * 1.5, SESSION_TIMEOUT_S * 2.5)
LATE = 0.4
"""How often what was held back arrives though it was given up."""
ANY_S = (0.5, SESSION_TIMEOUT_S * 2.5)


@attrs.define(eq=False)
class FaultStage:
    """What there is to hurt."""

    cluster: Cluster
    chance: random.Random
    say: Callable[[str], None]
    partitions: Sequence[TopicPartition]
    members: Sequence[Member]
    stock: StockGroup
    controller: Callable[[], int]
    passing: list[str] = attrs.field(factory=list)
    """Topics that came and went."""

    def some_broker(self) -> int:
        """One of the three."""
        return self.chance.choice(BROKERS)

    async def last(self, bounds: tuple[float, float], what: str) -> None:
        """Say it, and let it last a while."""
        seconds = self.chance.uniform(*bounds)
        self.say(f"{what}, for {seconds:.1f} s")
        await asyncio.sleep(seconds)


Fault = Callable[[FaultStage], Coroutine[Any, Any, None]]


# ---- processes


async def kill(stage: FaultStage) -> None:
    """kill -9 of a broker, and a start."""
    await _killed(stage, [stage.some_broker()])


async def kill_the_controller(stage: FaultStage) -> None:
    """kill -9 of the controller, and a start."""
    found = stage.controller()
    await _killed(stage, [found if found in BROKERS else stage.some_broker()])


async def kill_all(stage: FaultStage) -> None:
    """kill -9 of all brokers at once."""
    await _killed(stage, list(BROKERS))


async def _killed(stage: FaultStage, broker_ids: list[int]) -> None:
    await stage.cluster.kill(*broker_ids)
    await stage.last(ANY_S, f"killed {_named(broker_ids)}")
    await asyncio.gather(*(stage.cluster.start(each) for each in broker_ids))


async def freeze_shortly(stage: FaultStage) -> None:
    """SIGSTOP of a broker, for less than its session."""
    await _frozen(stage, stage.some_broker(), SHORT_S)


async def freeze_long(stage: FaultStage) -> None:
    """SIGSTOP of a broker, for longer than its session."""
    await _frozen(stage, stage.some_broker(), LONG_S)


async def freeze_the_controller(stage: FaultStage) -> None:
    """SIGSTOP of the controller, for longer than its session: then there are two."""
    found = stage.controller()
    await _frozen(stage, found if found in BROKERS else stage.some_broker(), LONG_S)


async def _frozen(stage: FaultStage, broker_id: int, bounds: tuple[float, float]) -> None:
    async with stage.cluster.frozen(broker_id):
        await stage.last(bounds, f"stopped broker {broker_id}")


async def roll(stage: FaultStage) -> None:
    """Restart all brokers in good order, one after the other."""
    for broker_id in stage.chance.sample(BROKERS, len(BROKERS)):
        ended = await stage.cluster.terminate(broker_id)
        stage.say(f"terminated broker {broker_id}{'' if ended else ', which did not end well'}")
        await stage.cluster.start(broker_id)


async def freeze_zookeeper_shortly(stage: FaultStage) -> None:
    """SIGSTOP of ZooKeeper, for less than any session."""
    async with stage.cluster.zookeeper_away(killed=False):
        await stage.last(SHORT_S, "stopped ZooKeeper")


async def freeze_zookeeper_long(stage: FaultStage) -> None:
    """SIGSTOP of ZooKeeper, for longer than all sessions."""
    async with stage.cluster.zookeeper_away(killed=False):
        await stage.last(LONG_S, "stopped ZooKeeper")


async def kill_zookeeper(stage: FaultStage) -> None:
    """kill -9 of ZooKeeper, and a start."""
    async with stage.cluster.zookeeper_away(killed=True):
        await stage.last(ANY_S, "killed ZooKeeper")


# ---- links


@contextlib.asynccontextmanager
async def _healed(stage: FaultStage, pairs: Sequence[Pair]) -> AsyncIterator[Sequence[Pair]]:
    try:
        yield pairs
    finally:
        stage.cluster.network.heal(pairs)


def _hold(stage: FaultStage, pairs: Sequence[Pair]) -> None:
    late = stage.chance.random() < LATE
    if late:
        stage.say("what is sent from now on arrives when nobody waits for it any more")
    stage.cluster.network.hold(pairs, late=late)


async def cut_two_brokers(stage: FaultStage) -> None:
    """Nothing passes between two brokers; both reach all others."""
    one, other = stage.chance.sample(BROKERS, 2)
    async with _healed(stage, both_ways(broker(one), broker(other))) as pairs:
        _hold(stage, pairs)
        await stage.last(ANY_S, f"cut broker {one} and broker {other}")


async def cut_one_way(stage: FaultStage) -> None:
    """Nothing passes from one broker to another, all passes back."""
    one, other = stage.chance.sample(BROKERS, 2)
    async with _healed(stage, [(broker(one), broker(other))]) as pairs:
        _hold(stage, pairs)
        await stage.last(ANY_S, f"cut broker {one} to broker {other}")


async def refuse_two_brokers(stage: FaultStage) -> None:
    """Two brokers get each other's connections refused."""
    one, other = stage.chance.sample(BROKERS, 2)
    async with _healed(stage, both_ways(broker(one), broker(other))) as pairs:
        stage.cluster.network.refuse(pairs)
        await stage.last(ANY_S, f"broker {one} and broker {other} refuse each other")


async def isolate(stage: FaultStage) -> None:
    """A broker reaches no other broker, but ZooKeeper and its clients."""
    one = stage.some_broker()
    pairs = [p for other in BROKERS if other != one for p in both_ways(broker(one), broker(other))]
    async with _healed(stage, pairs):
        _hold(stage, pairs)
        await stage.last(ANY_S, f"cut broker {one} from its peers")


async def slow_link(stage: FaultStage) -> None:
    """What passes between two brokers comes late."""
    one, other = stage.chance.sample(BROKERS, 2)
    seconds = stage.chance.uniform(0.02, 0.8)
    async with _healed(stage, both_ways(broker(one), broker(other))) as pairs:
        stage.cluster.network.delay(pairs, seconds)
        await stage.last(ANY_S, f"broker {one} and broker {other} hear {seconds:.2f} s late")


async def cut_from_zookeeper(stage: FaultStage) -> None:
    """A broker loses ZooKeeper, in silence, and keeps its peers and clients."""
    one = stage.some_broker()
    async with _healed(stage, both_ways(broker(one), ZOOKEEPER)) as pairs:
        stage.cluster.network.hold(pairs)
        await _without_zookeeper(stage, ANY_S, f"cut broker {one} from ZooKeeper")


async def cut_all_off(stage: FaultStage) -> None:
    """A broker reaches only its clients: neither peers nor ZooKeeper."""
    one = stage.some_broker()
    others = [broker(each) for each in BROKERS if each != one]
    pairs = [p for other in (*others, ZOOKEEPER) for p in both_ways(broker(one), other)]
    async with _healed(stage, pairs):
        stage.cluster.network.hold(pairs)
        await _without_zookeeper(stage, ANY_S, f"cut broker {one} from all but its clients")


async def refuse_zookeeper(stage: FaultStage) -> None:
    """A broker's connections to ZooKeeper are refused."""
    one = stage.some_broker()
    async with _healed(stage, both_ways(broker(one), ZOOKEEPER)) as pairs:
        stage.cluster.network.refuse(pairs)
        await _without_zookeeper(stage, ANY_S, f"refused broker {one} at ZooKeeper")


async def _without_zookeeper(stage: FaultStage, bounds: tuple[float, float], what: str) -> None:
    stage.cluster.zookeeper_troubles += 1
    try:
        await stage.last(bounds, what)
    finally:
        stage.cluster.zookeeper_troubles -= 1


async def reset_brokers(stage: FaultStage) -> None:
    """Connections between brokers are reset, again and again."""
    names = [broker(each) for each in BROKERS]
    pairs = [(one, other) for one in names for other in names if one != other]
    await _reset(stage, pairs, "between brokers")


async def reset_clients(stage: FaultStage) -> None:
    """Connections of clients are reset, again and again: answers are lost."""
    await _reset(stage, [(CLIENTS, broker(each)) for each in BROKERS], "of clients")


async def _reset(stage: FaultStage, pairs: Sequence[Pair], which: str) -> None:
    times = stage.chance.randint(3, 12)
    stage.say(f"reset the connections {which} {times} times")
    for _ in range(times):
        stage.cluster.network.reset(pairs)
        await asyncio.sleep(stage.chance.uniform(0.05, 0.6))


async def cut_clients(stage: FaultStage) -> None:
    """Nothing passes between clients and a broker; or only what they ask, not what they hear."""
    one = stage.some_broker()
    pairs = both_ways(CLIENTS, broker(one))[stage.chance.randint(0, 1) :]
    async with _healed(stage, pairs):
        stage.cluster.network.hold(pairs)
        how = "and broker" if len(pairs) == 2 else "from the answers of broker"
        await stage.last(ANY_S, f"cut clients {how} {one}")


# ---- what an operator does meanwhile


async def shrink_and_grow(stage: FaultStage) -> None:
    """Some partitions lose a replica, and get it again."""
    chosen = stage.chance.sample(list(stage.partitions), 3)
    fewer = {at: stage.chance.sample(BROKERS, 2) for at in chosen}
    async with _admin(stage) as admin:
        if admin_said := await _told(stage, admin.alter_partition_reassignments(fewer)):
            stage.say(f"two replicas for {_named(chosen)}{admin_said}")
        await stage.last(ANY_S, "let it be so")
        more = {at: stage.chance.sample(BROKERS, 3) for at in chosen}
        said = await _told(stage, admin.alter_partition_reassignments(more))
        stage.say(f"three replicas again{said}")


async def elect_preferred(stage: FaultStage) -> None:
    """Replicas change places, and the first ones are elected."""
    targets = {at: stage.chance.sample(BROKERS, 3) for at in stage.partitions}
    async with _admin(stage) as admin:
        said = await _told(stage, admin.alter_partition_reassignments(targets))
        stage.say(f"put the replicas in another order{said}")
        await asyncio.sleep(stage.chance.uniform(0.1, 2))
        said = await _told(stage, admin.elect_leaders(PREFERRED))
        stage.say(f"elected preferred leaders{said}")


async def topic_comes_and_goes(stage: FaultStage) -> None:
    """A topic is created, written, and deleted."""
    name = f"passing-{len(stage.passing)}"
    stage.passing.append(name)
    async with _admin(stage) as admin:
        said = await _told(stage, admin.create_topics([NewTopic(name, 4, 3)]))
        stage.say(f"created {name}{said}")
        with contextlib.suppress(ApiError, ClientError):
            settings = {"bootstrap.servers": stage.cluster.bootstrap, "max.block.ms": 5000}
            quick = {"delivery.timeout.ms": 3000, "request.timeout.ms": 2000}
            async with Producer(settings | quick) as producer:
                for number in range(50):
                    await producer.send(name, b"%d" % number)
                await asyncio.sleep(stage.chance.uniform(0, 2))
        stage.say(f"deleted {name}{await _told(stage, admin.delete_topics([name]))}")


async def member_leaves(stage: FaultStage) -> None:
    """A member of the group leaves, and comes again."""
    stage.chance.choice(list(stage.members)).leave.set()
    stage.say("a member leaves and comes again")


async def kill_a_stock_consumer(stage: FaultStage) -> None:
    """kill -9 of a stock consumer, and a start of another one of its kind."""
    if not stage.stock.kinds:
        stage.say("no stock consumer is killed: there is none")
        return
    kind = stage.chance.choice(stage.stock.kinds)
    stage.stock.kill(kind)
    await stage.last(ANY_S, f"killed {kind}")
    stage.stock.start(kind)


async def fill_the_disk(stage: FaultStage) -> None:
    """A broker's disk is full; then there is room again, and the broker is restarted."""
    disk = stage.cluster.small_disk
    if disk is None:
        stage.say("the disk is not filled: mounting a small one is not permitted here")
        return
    one = BROKERS[-1]
    filler = disk / "filler"
    stage.say(f"filled the disk of broker {one}")
    try:
        # In a thread: the clients are on this loop.
        await asyncio.to_thread(_write_until_full, filler)
        await stage.last(ANY_S, f"the disk of broker {one} is full")
    finally:
        filler.unlink(missing_ok=True)
    if stage.chance.random() < 0.5:
        await stage.cluster.kill(one)
    else:
        await stage.cluster.terminate(one)
    await stage.cluster.start(one)


def _write_until_full(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))


def _admin(stage: FaultStage) -> Admin:
    return Admin({"bootstrap.servers": stage.cluster.bootstrap} | PROMPT)


async def _told(stage: FaultStage, asked: Awaitable[object]) -> str:
    try:
        answered = await asked
    except (ApiError, ClientError) as error:
        return f": {error!r}"
    verdicts = answered if isinstance(answered, dict) else {}
    against = {each.code.name for each in verdicts.values() if each is not None}
    return f" ({', '.join(sorted(against))})" if against else " "


def _named(things: Sequence[object]) -> str:
    if all(isinstance(each, int) for each in things):
        return " and ".join(f"broker {each}" for each in things)
    return ", ".join(map(str, things))


FAULTS: dict[str, tuple[Fault, int]] = {
    "kill": (kill, 3),
    "kill the controller": (kill_the_controller, 2),
    "kill all": (kill_all, 1),
    "freeze shortly": (freeze_shortly, 2),
    "freeze long": (freeze_long, 2),
    "freeze the controller": (freeze_the_controller, 2),
    "roll": (roll, 1),
    "freeze ZooKeeper shortly": (freeze_zookeeper_shortly, 1),
    "freeze ZooKeeper long": (freeze_zookeeper_long, 1),
    "kill ZooKeeper": (kill_zookeeper, 1),
    "cut two brokers": (cut_two_brokers, 2),
    "cut one way": (cut_one_way, 3),
    "refuse two brokers": (refuse_two_brokers, 1),
    "isolate": (isolate, 2),
    "slow link": (slow_link, 1),
    "cut from ZooKeeper": (cut_from_zookeeper, 2),
    "cut all off": (cut_all_off, 2),
    "refuse ZooKeeper": (refuse_zookeeper, 1),
    "reset brokers": (reset_brokers, 1),
    "reset clients": (reset_clients, 2),
    "cut clients": (cut_clients, 1),
    "shrink and grow": (shrink_and_grow, 2),
    "elect preferred": (elect_preferred, 2),
    "topic comes and goes": (topic_comes_and_goes, 1),
    "member leaves": (member_leaves, 1),
    "kill a stock consumer": (kill_a_stock_consumer, 2),
    "fill the disk": (fill_the_disk, 1),
}
"""Each with its weight."""

ALONE = {"kill", "kill the controller", "kill all", "roll", "fill the disk"} | {
    name for name in FAULTS if name.startswith("freeze")
}
"""Of these one at a time: they begin and end processes."""


def deal(chance: random.Random) -> Iterator[str]:
    """Names without end: first each fault once in some order, then by weight."""
    names = list(FAULTS)
    chance.shuffle(names)
    while True:
        yield from names
        names = chance.choices(list(FAULTS), [weight for _, weight in FAULTS.values()], k=20)
