"""`kgroup serve` watches a cluster that comes and goes for an hour, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType

import attrs
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from clients.admin import Admin
from clients.command_line.output import Target
from clients.command_line.sessions import Sessions
from clients.serve.app import App
from clients.serve.monitor import Monitor
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.znodes import ConsumerOffset

HOUR_S = 3600
INTERVAL_S = 10
OUTAGE_S = 200
"""Longer than the session of serve with ZooKeeper, and than all its time-outs."""
CALM_S = 100
WARM_UP = 2
"""Outages after which everything was there once."""
KEPT_MS = 86_400_000
T0 = TopicPartition("t", 0)
GET = Request({"type": "http", "query_string": b""})
SETTINGS = {"zookeeper.session.timeout.ms": "18000", "log.cleaner.backoff.ms": "600000"}

Samples = dict[tuple[str, str], float]


@attrs.frozen
class Scene:
    """The cluster of one broker, and the server that watches it."""

    cluster: Cluster
    app: App

    async def scrape(self) -> Samples:
        """Return what Prometheus gets: (name, group) -> value."""
        response = await self.app.metrics(GET)
        return {
            (sample.name, sample.labels.get("group", "")): sample.value
            for family in text_string_to_metric_families(bytes(response.body).decode())
            for sample in family.samples
        }

    def outages(self) -> list[tuple[str, Callable[[], None], Callable[[], None]]]:
        """Return what begins and what ends an outage of each kind."""
        network, (node,) = self.cluster.network, self.cluster.nodes

        def cut_off() -> None:
            network.cut("serve", node.host)
            network.cut(node.host, "serve")

        def mend() -> None:
            network.mend("serve", node.host)
            network.mend(node.host, "serve")

        def zookeeper(change: Callable[[str, str], None]) -> Callable[[], None]:
            def for_serve() -> None:
                change("serve", ZK_HOST)
                change(ZK_HOST, "serve")
                self.cluster.zookeeper.path_changed()

            return for_serve

        return [
            ("is killed", node.stop, node.start),
            ("hangs", lambda: node.process.pause(), lambda: node.process.resume()),
            ("is cut off", cut_off, mend),
            ("has no ZooKeeper", zookeeper(network.cut), zookeeper(network.mend)),
        ]


def objects_kept_by(root: object) -> Counter[str]:
    """Count by class what an object refers to, directly or through others, in its own process."""
    gc.collect()
    seen: dict[int, object] = {}
    rest = [root]
    while rest:
        thing = rest.pop()
        is_code = isinstance(thing, type | ModuleType | FunctionType)
        if id(thing) in seen or is_code or type(thing).__module__.startswith("kgroup.testing"):
            continue
        seen[id(thing)] = thing
        rest += gc.get_referents(thing)
    return Counter(type(thing).__qualname__ for thing in seen.values())


async def commit(cluster: Cluster, group: str, offset: int) -> None:
    async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
        await admin.commit_group_offsets(group, {T0: OffsetAndMetadata(offset)})


async def replace(cluster: Cluster, old: str, new: str) -> None:
    async with Admin(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as admin:
        await admin.delete_groups([old])
    await commit(cluster, new, 0)


def test_series_come_back_after_each_outage_and_nothing_grows(tmp_path: Path) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[str]:
        others, server = cluster.client("others"), cluster.client("serve")
        await others.run(lambda: commit(cluster, "stays", 0))
        await others.run(lambda: commit(cluster, "comes-0", 0))
        ready: asyncio.Future[App] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            session = await cluster.open_session()
            await session.create(ConsumerOffset.path("old", *T0), b"0", make_parents=True)
            settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
            async with Admin(settings) as admin:
                monitor = Monitor(Sessions(admin, session), tmp_path / "h", KEPT_MS, INTERVAL_S)
                ready.set_result(App(monitor, Target(cluster.bootstrap, None, {}, 4000)))
                await monitor.run()

        server.spawn(serve())
        live = Scene(cluster, await ready)
        monitor = live.app.monitor
        kept: list[tuple[int, Counter[str]]] = []
        told: list[str] = []

        async def is_up(groups: set[str]) -> bool:
            samples = await live.scrape()
            shown = {group for name, group in samples if name == "kgroup_group_lag"}
            is_well = samples["kgroup_up", ""] == 1 and samples["kgroup_read_failures", ""] == 0
            return is_well and shown == groups

        number = 0
        while cluster.world.now < HOUR_S:
            for kind, begin, end in live.outages():
                groups = {"stays", "old", f"comes-{number}"}
                await until(lambda of=groups: is_up(of), f"all series, before it {kind}")
                read_at_ms = monitor.read_at_ms

                # What was read last stays, and the server says that it is old.
                begin()
                await asyncio.sleep(OUTAGE_S)
                samples = await live.scrape()
                assert samples["kgroup_read_failures", ""] >= 1, kind
                assert {group for name, group in samples if name == "kgroup_group_lag"} == groups
                if kind != "has no ZooKeeper":
                    assert samples["kgroup_up", ""] == 0, kind
                    assert monitor.read_at_ms - read_at_ms < 2 * INTERVAL_S * 1000
                told.append(kind)

                end()
                number += 1
                names = f"comes-{number - 1}", f"comes-{number}"
                await others.run(lambda of=names: replace(cluster, *of))
                await asyncio.sleep(CALM_S)
                kept.append((len(server.loop.tasks), objects_kept_by(monitor)))

        # Neither tasks nor objects pile up: less than one for each outage since.
        tasks, objects = kept[WARM_UP * len(live.outages()) - 1]
        last_tasks, last_objects = kept[-1]
        assert last_tasks <= tasks
        grown = last_objects - objects
        print(grown, [o.total() for _, o in kept], last_objects, monitor._trends.keys())
        assert grown.total() < len(kept) - WARM_UP * len(live.outages()), grown
        return told

    told = simulate(scene, seed=1, brokers=1, topics={"t": 1}, settings=SETTINGS)
    assert len(told) >= 3 * len(set(told)) == 12
