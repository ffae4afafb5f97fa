"""The web application: metrics, JSON in the commands' envelopes, and the page.

Whatever the state of the cluster it responds, with what was read last, and when. It only reads, but
for `writes`, and those only where they are allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import attrs
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clients.command_line.command_group import CommandFailed
from clients.command_line.output import Failure, Target
from clients.command_line.sessions import bootstrap_of, client_settings
from clients.errors import KgroupError
from clients.groups.group_view import unknown_group
from clients.kgroup.at_risk import risks_of
from clients.kgroup.events import find_source, read_events, reading_until
from clients.kgroup.journal import entry_item
from clients.resets.journal import Journal
from clients.serve.envelope import HEADERS, envelope
from clients.serve.known_hosts import KnownHosts
from clients.serve.metrics import MAX_GROUPS_BY_PARTITION, Scrape, metrics_text
from clients.serve.monitor import Monitor, now_ms
from clients.serve.write_access import WriteAccess
from clients.serve.writes import Writes
from clients.simple_consumer import SimpleConsumer
from clients.watching.health import judge_all
from protocol.frozen import frozen
from zk.api import ZkError

PAGE = Path(__file__).parent / "page"
HOUR_MS = 3_600_000
AHEAD_MS = 4 * HOUR_MS
KEEP_S = 15
"""Time for which a response that took reading a topic is given again."""


class GroupConvertor(StringConvertor):
    """Takes the id of a group in a path; it may have slashes and newlines."""

    regex = "(?s:.+)"


register_url_convertor("group", GroupConvertor())


@frozen
class App:
    """The handlers, over one monitor."""

    monitor: Monitor
    target: Target
    compat: Sequence[str] = ()
    granularity: str | None = None
    access: WriteAccess | None = None
    """Who may write; None if nobody may."""
    hosts: frozenset[str] = frozenset()
    """The names by which the server is reached, in lower case."""
    is_local: bool = True
    """Whether it listens for its own machine alone."""
    _kept: dict[tuple[str, str | None], tuple[float, Response]] = attrs.field(factory=dict)
    """The last responses on events and journals, with the times at which they end."""

    def routes(self) -> list[Route | Mount]:
        """Return what is served where."""
        writes = Writes(self.monitor.sessions, self.target, self.access, self._forget_journals)
        return [
            Route("/", self.page),
            Route("/metrics", self.metrics),
            Route("/api/v1/groups", self.groups),
            Route("/api/v1/group/{group:group}/reset", writes.reset, methods=["POST"]),
            Route("/api/v1/journal/{id}/undo", writes.undo, methods=["POST"]),
            Route("/api/v1/group/{group:group}", self.group),
            Route("/api/v1/lag/{group:group}", self.lag),
            Route("/api/v1/health", self.health),
            Route("/api/v1/events", self.events),
            Route("/api/v1/journal", self.journal),
            Route("/api/v1/at-risk", self.at_risk),
            Mount("/page", StaticFiles(directory=PAGE)),
        ]

    async def page(self, request: Request) -> Response:
        """The page; what it shows it asks for itself."""
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    async def metrics(self, request: Request) -> Response:
        """The text that Prometheus scrapes. No request is made for it."""
        monitor = self.monitor
        groups = await monitor.group_items()
        by_partition = (
            len(groups) <= MAX_GROUPS_BY_PARTITION
            if self.granularity is None
            else self.granularity == "partition"
        )
        scrape = Scrape(
            cluster_id=monitor.cluster_id,
            is_up=monitor.error is None,
            is_zookeeper_up=monitor.is_zookeeper_up,
            read_at_ms=monitor.read_at_ms,
            failures=len(monitor.failures),
            groups=groups,
            logs=monitor.recorder.watch.logs if monitor.recorder else {},
            commits=monitor.commits_total,
            health=await monitor.health() if by_partition or "burrow" in self.compat else (),
            by_partition=by_partition,
        )
        text = await asyncio.to_thread(metrics_text, scrape, self.compat)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def groups(self, request: Request) -> Response:
        """Respond with all groups, their lags and verdicts."""
        verdicts = {item["group"]: item["verdict"] for item in await self.monitor.health()}
        items = [
            item | {"verdict": verdicts.get(item["group"], "UNKNOWN")}
            for item, _ in await self.monitor.group_items()
        ]
        monitor = self.monitor
        # The text of thousands of groups takes a while.
        return await asyncio.to_thread(
            envelope,
            "groups",
            items,
            monitor.failures,
            cluster_id=monitor.cluster_id,
            read_at_ms=monitor.read_at_ms,
            now_ms=now_ms(),
            interval_ms=int(monitor.interval_s * 1000),
            allows_writes=self.access is not None,
        )

    async def group(self, request: Request) -> Response:
        """The partitions of a group, with their verdicts."""
        group_id = request.path_params["group"]
        if group_id not in self.monitor.groups:
            return self._unknown("group", group_id)
        judged = {
            (item["topic"], item["partition"]): item
            for item in await self.monitor.health()
            if item["group"] == group_id
        }
        items = []
        for item in self.monitor.partitions(group_id):
            verdict = judged.get((item["topic"], item["partition"]), {})
            items.append(item | {"status": verdict.get("status"), "why": verdict.get("why")})
        return envelope("group", items, self.monitor.failures, read_at_ms=self.monitor.read_at_ms)

    async def lag(self, request: Request) -> Response:
        """The lag of a group over the last hour."""
        group_id = request.path_params["group"]
        since_ms = self.monitor.brokers_time_ms - HOUR_MS
        items = await asyncio.to_thread(self.monitor.lag_items, group_id, since_ms)
        return envelope("lag", items, self.monitor.failures)

    async def health(self, request: Request) -> Response:
        """The verdicts on all groups, or on those that are named by `group`."""
        wanted = dict.fromkeys(request.query_params.getlist("group"))
        items = [i for i in await self.monitor.health() if not wanted or i["group"] in wanted]
        verdicts = {item["group"]: item["verdict"] for item in items}
        missing = [group_id for group_id in wanted if group_id not in self.monitor.groups]
        return envelope(
            "health",
            items,
            [*self.monitor.failures, *map(unknown_group, missing)],
            judge_all(verdicts)[1],
            status=404 if wanted and len(missing) == len(wanted) else 200,
        )

    async def events(self, request: Request) -> Response:
        """The rebalances of the group that is named by `group`."""
        group_id = request.query_params.get("group", "")
        return await self._keep(("events", group_id), lambda: self._read_events(group_id))

    async def _read_events(self, group_id: str) -> Response:
        # Rebalances are in Kafka alone.
        target = self.target
        if target.bootstrap is not None:
            target = attrs.evolve(target, zookeeper=None)
        try:
            source, partition, start, end = await find_source(target, group_id, 0)
            events = []
            if start < end:
                settings = client_settings(target, await bootstrap_of(target))
                async with await SimpleConsumer.for_leader(settings, *partition) as consumer:
                    reading = read_events(consumer, source, partition, start)
                    events = [event async for event in reading_until(reading, end)]
            if not events and group_id not in self.monitor.groups:
                return self._unknown("events", group_id)
            return envelope("events", events, (), source.judge(events))
        except CommandFailed as failure:
            return envelope("events", (), (), str(failure))
        except (KgroupError, ZkError) as error:
            return envelope("events", (), [Failure.of("events", error)])

    async def journal(self, request: Request) -> Response:
        """The resets, of the group that is named by `group` or of all."""
        group_id = request.query_params.get("group")
        return await self._keep(("journal", group_id), lambda: self._read_journal(group_id))

    async def _read_journal(self, group_id: str | None) -> Response:
        try:
            journal = await Journal.of(self.monitor.sessions.admin, keeps_clients=False)
            entries = await journal.entries()
        except (KgroupError, OSError) as error:
            return envelope("journal", (), [Failure.of("journal", error)])
        items = [entry_item(entry, log) for entry, log in entries.values()]
        return envelope("journal", [i for i in items if group_id in (None, i["group"])])

    async def at_risk(self, request: Request) -> Response:
        """Respond with what the groups that `group` names, or all, will lose within four hours."""
        group_ids = request.query_params.getlist("group")
        try:
            listing, _ = await risks_of(self.target, group_ids, AHEAD_MS)
        except (KgroupError, ZkError) as error:
            return envelope("at-risk", (), [Failure.of("at-risk", error)])
        return envelope("at-risk", listing.items, listing.errors, listing.verdict)

    async def _keep(
        self, key: tuple[str, str | None], read: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the response that is kept, or read it: every open page asks at each refresh."""
        now = time.monotonic()
        for old in [key for key, (until, _) in self._kept.items() if until <= now]:
            del self._kept[old]

        if key not in self._kept:
            response = await read()
            self._kept[key] = (time.monotonic() + KEEP_S, response)
            return response
        return self._kept[key][1]

    def _unknown(self, kind: str, group_id: str) -> Response:
        return envelope(kind, (), [unknown_group(group_id)], status=404)

    def _forget_journals(self) -> None:
        """Read the journal again when it is asked for: something was written."""
        for key in [key for key in self._kept if key[0] == "journal"]:
            del self._kept[key]


def make_app(app: App) -> Starlette:
    """Return the application; its monitor runs while it does."""

    @contextlib.asynccontextmanager
    async def watching(_: Starlette) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(app.monitor.run())
            yield
            running.cancel()
        app.monitor.close()

    checked = Middleware(KnownHosts, hosts=app.hosts, is_local=app.is_local)
    return Starlette(routes=app.routes(), middleware=[checked], lifespan=watching)
