"""ZkSession over kazoo, for asyncio; and all the names of `zk.api`, so that one import is enough.

Every call is bounded by the session timeout. A call made while SUSPENDED waits for the connection
and is never sent once it has failed, so a write given up for lost can't be applied much later. A
call that was on its way when the connection broke fails with ConnectionLoss at once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as packet
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from zk.api import (
    MAX_BATCH_BYTES,
    MAX_REQUEST_BYTES,
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MultiFailed,
    NoAuth,
    NoChroot,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    RequestTooLarge,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StateListener,
    Watch,
    Watches,
    WatchEvent,
    WatchKind,
    ZkError,
    ZkSession,
    get_if_there,
    path_bytes,
    split_into_batches,
)
from zk.kazoo_link import KazooLink, LinkState, MultiRead, Request

__all__ = [
    "BadVersion",
    "Check",
    "ConnectionLoss",
    "Create",
    "Delete",
    "KazooSession",
    "MultiFailed",
    "NoAuth",
    "NoChroot",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "Op",
    "RequestTooLarge",
    "SessionExpired",
    "SessionState",
    "SetData",
    "Stat",
    "StateListener",
    "Watch",
    "WatchEvent",
    "ZkError",
    "ZkSession",
]

MAX_READS_PER_REQUEST = 1000
MAX_IN_FLIGHT = 100  # kazoo wakes its thread with a byte a call, and blocks when some 250 wait

_log = logging.getLogger(__name__)


class KazooSession:
    """ZkSession over kazoo, for `hosts` = "host:port[,host:port…][/chroot]".

    A watch fires before any read shows the change, as ZooKeeper promises. `connection_timeout_ms`
    bounds `start`, and is the session timeout unless given. A chroot must exist, as a mistyped one
    would be an empty cluster; with `create_chroot`, which is for brokers, it is created.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 6000,
        connection_timeout_ms: int | None = None,
        create_chroot: bool = False,
    ) -> None:
        self._hosts, slash, chroot = hosts.partition("/")
        self._chroot = (slash + chroot).rstrip("/")
        self.state = SessionState.SUSPENDED
        self.session_id = 0
        self.session_timeout_ms = session_timeout_ms
        self.suspended_since_ms: int | None = None
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms
        self._create_chroot = create_chroot
        self._listeners: list[StateListener] = []
        self._watches = Watches()
        self._expirations = 0
        self._connected = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._link: KazooLink | None = None

    @property
    def silence_ms(self) -> int:
        return int(self._link.silent_s * 1000) if self._link else 0

    async def start(self) -> None:
        """Connect. Raises ConnectionLoss, naming the hosts, when that takes too long, NoChroot, and
        ZkError for hosts that are none; the session is closed then."""
        assert self._link is None, "a session starts once"
        timeout_ms = self.session_timeout_ms
        try:
            self._link = KazooLink(self._hosts, timeout_ms, self._on_link, self._on_event)
        except ValueError as error:
            await self.close()
            raise ZkError(f"zookeeper.connect: {self._hosts}: {error}") from None
        self._link.start()
        try:
            await self._first_connection()
            if self._chroot:
                await self._find_chroot()
        except BaseException:
            await self.close()
            raise

    async def _first_connection(self) -> None:
        timeout_ms = self._connection_timeout_ms
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        if not self._connected.is_set():
            reason = f"no session with ZooKeeper at {self._hosts} within {timeout_ms} ms"
            raise ConnectionLoss(reason)

    async def _find_chroot(self) -> None:
        """See to it that the chroot exists. Raises NoChroot."""
        if self._create_chroot:
            await self._ensure(self._chroot)
            return

        await self.sync("/")  # a broker may just have created it, by another server
        if await self.exists("/") is None:
            raise NoChroot(
                f"zookeeper.connect: the chroot {self._chroot} does not exist in ZooKeeper at "
                f"{self._hosts}; the brokers that use it create it"
            )

    async def close(self) -> None:
        if self.state is not SessionState.CLOSED:
            self._become(SessionState.CLOSED)
        self._connected.set()  # who waits for a connection shall see that none will come
        if self._link is not None:
            await self._link.close(self.session_timeout_ms / 1000)

    def add_state_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_state_listener(self, listener: StateListener) -> None:
        self._listeners.remove(listener)

    def remove_watch(self, watch: Watch) -> None:
        self._watches.remove(watch)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        def arm(_: object) -> None:
            self._watches.add("data", path, watch)

        data, stat = await self._ask(packet.GetData(self._full(path), bool(watch)), arm)
        return data, _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        found: list[tuple[bytes | None, Stat] | None] = []
        for some in split_into_batches(paths, path_bytes, MAX_READS_PER_REQUEST, MAX_BATCH_BYTES):
            found += await self._get_some(some)
        return found

    async def _get_some(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        assert self._link is not None, "the session has not been started"
        if not self._link.can_multi_read:
            return await asyncio.gather(*(get_if_there(self, path) for path in paths))
        answers = await self._ask(MultiRead([*map(self._full, paths)]))
        return [answer and (answer[0], _stat(answer[1])) for answer in answers]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def arm(stat: ZnodeStat | None) -> None:
            self._watches.add("data" if stat else "absent", path, watch)

        stat = await self._ask(packet.Exists(self._full(path), bool(watch)), arm)
        return _stat(stat) if stat else None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        def arm(_: object) -> None:
            self._watches.add("children", path, watch)

        names, stat = await self._ask(packet.GetChildren2(self._full(path), bool(watch)), arm)
        return sorted(names), _stat(stat)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        full = self._full(path)
        request = packet.Create(full, data, OPEN_ACL_UNSAFE, ephemeral | sequence << 1)
        try:
            created = await self._ask(request)
        except NoNode:
            if not make_parents:
                raise
            await self._ensure(_parent(full))
            created = await self._ask(request)
        return self._bare(created)

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return _stat(await self._ask(packet.SetData(self._full(path), data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask(packet.Delete(self._full(path), version))

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        if not ops:
            return []
        results = await self._ask(packet.Transaction([self._packet(op) for op in ops]))
        for index, error in enumerate(results):
            if isinstance(error, Exception) and not isinstance(error, _NOT_THE_CAUSE):
                raise MultiFailed(index, _translated(error, ops[index].path))
        return [self._result(result) for result in results]

    async def sync(self, path: str) -> None:
        await self._ask(packet.Sync(self._full(path)))

    async def ensure_path(self, path: str) -> None:
        if path != "/":
            await self._ensure(self._full(path))

    async def delete_recursive(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            while True:  # a child may come between the listing and the deletion
                try:
                    return await self.delete(path)
                except NotEmpty:
                    names, _ = await self.children(path)
                for name in names:
                    await self.delete_recursive(f"{path}/{name}")

    async def _ensure(self, full: str) -> None:
        if full == "/":
            return
        if full == self._chroot and not self._create_chroot:
            raise NoNode(f"the chroot {full}")
        request = packet.Create(full, None, OPEN_ACL_UNSAFE, 0)
        with contextlib.suppress(NodeExists):
            try:
                await self._ask(request)
            except NoNode:
                await self._ensure(_parent(full))
                await self._ask(request)

    async def _ask(self, asked: Any, then: Callable[[Any], None] | None = None) -> Any:
        """The reply to `asked`; `then` gets it before anything is told that came after it."""
        assert self._link is not None, "the session has not been started"
        request = self._request(asked)
        expirations = self._expirations
        try:
            while True:
                async with self._slots:
                    if self._connected_in(expirations):
                        return await self._reply(self._link.call(request, then))
                await self._connection(expirations)
        except TimeoutError:
            timeout_ms = self.session_timeout_ms
            raise ConnectionLoss(f"{self._name(asked)}: no answer in {timeout_ms} ms") from None
        except kazoo_errors.KazooException as error:
            raise _translated(error, self._name(asked)) from None

    def _request(self, asked: Any) -> Request:
        """Raises ZkError for what no server takes; sent to one, it would break the connection."""
        try:
            request = Request.of(asked)
        except UnicodeEncodeError as error:
            raise ZkError(f"{self._name(asked)!r}: {error}") from None
        if (size_bytes := request.size_bytes) > MAX_REQUEST_BYTES:
            raise RequestTooLarge(
                f"{self._name(asked)}: {size_bytes} bytes; ZooKeeper takes no request "
                f"of more than {MAX_REQUEST_BYTES} (jute.maxbuffer)"
            )
        return request

    async def _reply(self, reply: "asyncio.Future[Any]") -> Any:
        """Wait for `reply`, which counts though the loop was too busy to look at it in time."""
        try:
            await asyncio.wait([reply], timeout=self.session_timeout_ms / 1000)
            if not reply.done():
                raise TimeoutError
            return reply.result()
        finally:
            reply.cancel()

    async def _connection(self, expirations: int) -> None:
        """Wait for a connection, which counts though the loop was too busy to look in time."""
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                while not self._connected_in(expirations):
                    await self._connected.wait()
        except TimeoutError:
            if not self._connected_in(expirations):
                raise

    def _connected_in(self, expirations: int) -> bool:
        """Whether a call sent now goes out in the session that had seen so many `expirations`."""
        assert self._link is not None
        if self.state is SessionState.CLOSED or self._expirations != expirations:
            raise SessionExpired("the session in which the call was made has ended")
        # kazoo's thread knows before the loop does that the connection is lost, or another's.
        if self._link.session_id != self.session_id:
            self._connected.clear()
        return self._connected.is_set()

    def _name(self, request: Any) -> str:
        path = getattr(request, "path", None)
        return f"{type(request).__name__} {self._bare(path)}" if path else type(request).__name__

    def _on_link(self, now: LinkState) -> None:
        if self.state is SessionState.CLOSED:
            return
        assert self._link is not None
        state = _STATES[now.state]
        if state is SessionState.CONNECTED:
            self.session_timeout_ms = self._link.granted_timeout_ms
            self.session_id, self.suspended_since_ms = now.session_id, None
            watched = self._watches.paths.values()
            self._link.set_watches(now.last_zxid, *([*map(self._full, paths)] for paths in watched))
            self._connected.set()
        else:
            self._connected.clear()
        if state is SessionState.SUSPENDED:
            silent_s = time.monotonic() - now.answered_at
            self.suspended_since_ms = int((asyncio.get_running_loop().time() - silent_s) * 1000)
        if state is SessionState.EXPIRED:
            self.session_id = 0
            self._expirations += 1
            self._watches.clear()
        self._become(state)

    def _become(self, state: SessionState) -> None:
        self.state = state
        level = logging.WARNING if state in _TROUBLE else logging.INFO
        _log.log(level, "session 0x%x with %s: %s", self.session_id, self._hosts, state.value)
        for listener in tuple(self._listeners):
            _tell(listener, state)

    def _on_event(self, kind: int, full: str) -> None:
        event = WatchEvent(_EVENT_KINDS[kind], self._bare(full))
        for watch in self._watches.take(event):
            _tell(watch, event)

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _bare(self, full: str) -> str:
        return full.removeprefix(self._chroot) or "/"

    def _packet(self, op: Op) -> Any:
        path = self._full(op.path)
        match op:
            case Create():
                return packet.Create(path, op.data, OPEN_ACL_UNSAFE, int(op.ephemeral))
            case SetData():
                return packet.SetData(path, op.data, op.version)
            case Delete():
                return packet.Delete(path, op.version)
            case Check():
                return packet.CheckVersion(path, op.version)

    def _result(self, result: str | ZnodeStat | bool) -> str | Stat | None:
        if isinstance(result, str):
            return self._bare(result)
        return _stat(result) if isinstance(result, ZnodeStat) else None


_TROUBLE = (SessionState.SUSPENDED, SessionState.EXPIRED)
_STATES = {
    KeeperState.CONNECTED: SessionState.CONNECTED,
    KeeperState.CONNECTED_RO: SessionState.CONNECTED,
    KeeperState.CONNECTING: SessionState.SUSPENDED,
    KeeperState.EXPIRED_SESSION: SessionState.EXPIRED,
    KeeperState.AUTH_FAILED: SessionState.CLOSED,
    KeeperState.CLOSED: SessionState.CLOSED,
}
_EVENT_KINDS: dict[int, WatchKind] = {1: "created", 2: "deleted", 3: "changed", 4: "children"}
_ERRORS: dict[type[Exception], type[ZkError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoAuthError: NoAuth,
    kazoo_errors.ConnectionLoss: ConnectionLoss,
    kazoo_errors.ConnectionClosedError: ConnectionLoss,
    kazoo_errors.SessionMovedError: ConnectionLoss,  # so has the connection, or will at once
    kazoo_errors.UnimplementedError: ConnectionLoss,  # so the server breaks it
    kazoo_errors.SessionExpiredError: SessionExpired,
}
# What a failed multi says of the operations before and after the one that failed.
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


def _translated(error: Exception, where: str) -> ZkError:
    kind = _ERRORS.get(type(error))
    return kind(where) if kind else ZkError(f"{where}: {type(error).__name__} {error}".rstrip())


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        version=stat.version,
        cversion=stat.cversion,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
        num_children=stat.numChildren,
    )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _tell(listener: Callable[[Any], None], what: object) -> None:
    """One listener's failure is logged, and must not keep the others from hearing."""
    try:
        listener(what)
    except Exception:
        _log.exception("%r failed on %r", listener, what)
