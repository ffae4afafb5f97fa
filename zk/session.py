"""The real ZkSession: kazoo, on asyncio.

Every call is bounded by the session timeout. A call made while SUSPENDED waits for the connection.
Once it has failed it is never sent, so a write that the caller gave up cannot be applied much
later. A call in flight when the connection breaks fails with ConnectionLoss at once.
"""

import asyncio
import contextlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as packet
from kazoo.protocol.states import KeeperState, ZnodeStat
from kazoo.security import ACL, Id

from protocol.suspension import machine_s
from zk.acls import OPEN, Permission, secure_acl
from zk.api import (
    MAX_BATCH_BYTES,
    MAX_REQUEST_BYTES,
    AuthFailed,
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
    get_if_there,
    path_bytes,
    split_into_batches,
)
from zk.kazoo_link import KazooLink, LinkState, MultiRead, Request
from zk.login import NOBODY, ZkLogin

MAX_READS_PER_REQUEST = 1000
MAX_IN_FLIGHT = 100  # kazoo wakes its thread with a byte a call, and blocks when some 250 wait

logger = logging.getLogger(__name__)


class KazooSession:
    """A ZkSession over kazoo, with `hosts` = "host:port[,host:port…][/chroot]".

    A watch fires before any read shows the change, as ZooKeeper promises.

    `connection_timeout_ms` bounds `start`; its default is the session timeout. The chroot must
    exist, because a mistyped one would look like an empty cluster. With `create_chroot`, which is
    for brokers, `start` creates it. `login` says who the session is.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 6000,
        connection_timeout_ms: int | None = None,
        create_chroot: bool = False,
        login: ZkLogin = NOBODY,
    ) -> None:
        # kazoo gets no chroot: it is checked and added here.
        self._hosts, slash, chroot = hosts.partition("/")
        self._chroot = (slash + chroot).rstrip("/")
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms
        self._create_chroot = create_chroot
        self.login = login

        self.state = SessionState.SUSPENDED
        self.session_id = 0
        self.session_timeout_ms = session_timeout_ms
        self.suspended_since_ms: int | None = None

        self._listeners: list[StateListener] = []
        self._watches = Watches()
        # A call notes this number. Once it differs, the session of the call has ended.
        self._expirations = 0
        self._connected = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._link: KazooLink | None = None
        # True after `start` went without a connection.
        self._is_unfinished = False

    @property
    def silence_ms(self) -> int:
        return int(self._link.silent_s * 1000) if self._link else 0

    async def start(self, *, must_connect: bool = True) -> None:
        """Connect.

        Raises ConnectionLoss, which names the hosts, if that takes too long, AuthFailed, NoChroot,
        and ZkError for `hosts` that cannot be parsed. The session is closed then.

        Without `must_connect` a session that gets no connection in time goes on trying. Each call
        waits for one as long as `start` does, and raises what `start` would.
        """
        assert self._link is None, "a session starts once"
        assert must_connect or not self._create_chroot
        if self.login.sasl is not None and importlib.util.find_spec("puresasl") is None:
            raise ZkError("a login to ZooKeeper by SASL needs: pip install 'kgroup[security]'")

        try:
            self._link = KazooLink(
                self._hosts,
                self.session_timeout_ms,
                self._on_link_state,
                self._on_event,
                self.login,
            )
        except ValueError as error:
            await self.close()
            raise ZkError(f"zookeeper.connect: {self._hosts}: {error}") from None

        self._link.start()
        try:
            await self._finish_start()
        except BaseException as error:
            if must_connect or not isinstance(error, ConnectionLoss):
                await self.close()
                raise
            self._is_unfinished = True

    async def _finish_start(self) -> None:
        await self._await_first_connection()
        await self._check_chroot()
        self._is_unfinished = False

    async def _await_first_connection(self) -> None:
        timeout_ms = self._connection_timeout_ms
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()

        # The login was refused.
        if self.state is SessionState.CLOSED:
            raise AuthFailed(f"ZooKeeper at {self._hosts} refuses the login of this session")

        # The event counts even if the loop was too busy to look at it in time.
        if not self._connected.is_set():
            reason = f"no session with ZooKeeper at {self._hosts} within {timeout_ms} ms"
            assert self._link is not None, "the session has been started"
            if self._link.obstacle:
                # A broker's port is the usual mistake (fault users-20).
                reason += f": {self._link.obstacle}"
            raise ConnectionLoss(reason)

    async def _check_chroot(self) -> None:
        """Check that the chroot exists, or create it. Raises NoChroot."""
        if not self._chroot:
            return
        if self._create_chroot:
            await self._create_missing(self._chroot)
            return

        # A broker may just have created it, on another server.
        await self._request(packet.Sync(self._chroot))
        if await self._request(packet.Exists(self._chroot, False)) is None:
            raise NoChroot(
                f"zookeeper.connect: the chroot {self._chroot} does not exist in ZooKeeper at "
                f"{self._hosts}; the brokers that use it create it"
            )

    async def close(self) -> None:
        if self.state is not SessionState.CLOSED:
            self._set_state(SessionState.CLOSED)

        # Wake the calls that wait for a connection: they fail, because none will come.
        self._connected.set()

        if self._link is not None:
            await self._link.close(self.session_timeout_ms / 1000)

    def add_state_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_state_listener(self, listener: StateListener) -> None:
        self._listeners.remove(listener)

    def remove_watch(self, watch: Watch) -> None:
        self._watches.remove(watch)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        # Set the watch with the reply, so that no event after it is missed.
        def arm(_: object) -> None:
            self._watches.add("data", path, watch)

        data, stat = await self._ask(packet.GetData(self._add_chroot(path), bool(watch)), arm)
        return data, _convert_stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        nodes: list[tuple[bytes | None, Stat] | None] = []
        for batch in split_into_batches(paths, path_bytes, MAX_READS_PER_REQUEST, MAX_BATCH_BYTES):
            nodes += await self._get_batch(batch)
        return nodes

    async def _get_batch(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        assert self._link is not None, "the session has not been started"
        # A server that does not know MultiRead is asked for node after node.
        if not self._link.can_multi_read:
            return await asyncio.gather(*(get_if_there(self, path) for path in paths))

        nodes = await self._ask(MultiRead([*map(self._add_chroot, paths)]))
        return [node and (node[0], _convert_stat(node[1])) for node in nodes]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def arm(stat: ZnodeStat | None) -> None:
            self._watches.add("data" if stat else "absent", path, watch)

        stat = await self._ask(packet.Exists(self._add_chroot(path), bool(watch)), arm)
        return _convert_stat(stat) if stat else None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        def arm(_: object) -> None:
            self._watches.add("children", path, watch)

        names, stat = await self._ask(packet.GetChildren2(self._add_chroot(path), bool(watch)), arm)
        return sorted(names), _convert_stat(stat)

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        full = self._add_chroot(path)
        # ZooKeeper's flags: 1 ephemeral, 2 sequential.
        request = packet.Create(full, data, self._acl(path), ephemeral | sequence << 1)

        # Parents are seldom missing, so look after them only if they are.
        try:
            created = await self._ask(request)
        except NoNode:
            if not make_parents:
                raise
            await self._create_missing(_parent_path(full))
            created = await self._ask(request)

        return self._remove_chroot(created)

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        return _convert_stat(await self._ask(packet.SetData(self._add_chroot(path), data, version)))

    async def delete(self, path: str, version: int = -1) -> None:
        await self._ask(packet.Delete(self._add_chroot(path), version))

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        if not ops:
            return []

        results = await self._ask(packet.Transaction([self._convert_op(op) for op in ops]))

        # If one operation fails, all have errors, but only one of these is the cause.
        for index, error in enumerate(results):
            if isinstance(error, Exception) and not isinstance(error, _NOT_THE_CAUSE):
                raise MultiFailed(index, _translate_error(error, ops[index].path))

        return [self._convert_result(result) for result in results]

    async def sync(self, path: str) -> None:
        await self._ask(packet.Sync(self._add_chroot(path)))

    async def ensure_path(self, path: str) -> None:
        if path != "/":
            await self._create_missing(self._add_chroot(path))

    async def delete_recursive(self, path: str) -> None:
        with contextlib.suppress(NoNode):
            # Others may create a child after we have listed the children: try again then.
            while True:
                try:
                    return await self.delete(path)
                except NotEmpty:
                    names, _ = await self.children(path)

                for name in names:
                    await self.delete_recursive(f"{path}/{name}")

    async def _create_missing(self, full: str) -> None:
        """Create the node at `full`, which includes the chroot, and its parents."""
        if full == "/":
            return

        # A chroot deleted under us stays deleted: an empty one would look like an empty cluster.
        if full == self._chroot and not self._create_chroot:
            raise NoNode(f"the chroot {full}")

        # NodeExists: another client creates the same path.
        request = packet.Create(full, None, self._acl(self._remove_chroot(full)), 0)
        with contextlib.suppress(NodeExists):
            try:
                await self._ask(request)
            except NoNode:
                await self._create_missing(_parent_path(full))
                await self._ask(request)

    # --- access -------------------------------------------------------------------------------

    async def set_acl(self, path: str, permissions: Sequence[Permission]) -> Stat:
        """Replace the ACL of a node. Raises NoAuth unless the session may do so, and NoNode."""
        acl = _convert_acl(permissions)
        return _convert_stat(await self._ask(packet.SetACL(self._add_chroot(path), acl, -1)))

    async def get_acl(self, path: str) -> frozenset[Permission]:
        """Return who may do what to a node."""
        acl, _ = await self._ask(packet.GetACL(self._add_chroot(path)))
        return frozenset(Permission(e.perms, e.id.scheme, e.id.id) for e in acl)

    def _acl(self, path: str) -> list[ACL]:
        return _convert_acl(secure_acl(path) if self.login.keeps_nodes else OPEN)

    # --- requests -----------------------------------------------------------------------------

    async def _ask(self, message: Any, then: Callable[[Any], None] | None = None) -> Any:
        """Send `message` and return its reply. Raises ZkError.

        `then(reply)` runs before any watch or listener of an event that came after the reply.
        """
        if self._is_unfinished:
            await self._finish_start()
        return await self._request(message, then)

    async def _request(self, message: Any, then: Callable[[Any], None] | None = None) -> Any:
        assert self._link is not None, "the session has not been started"
        request = self._serialize(message)
        expirations = self._expirations

        try:
            while True:
                async with self._slots:
                    if self._is_connected_in(expirations):
                        return await self._await_reply(self._link.call(request, then))

                # Others may use the slot while we wait for a connection.
                await self._await_connection(expirations)
        except TimeoutError:
            timeout_ms = self.session_timeout_ms
            raise ConnectionLoss(
                f"{self._describe(message)}: no response in {timeout_ms} ms"
            ) from None
        except kazoo_errors.KazooException as error:
            raise _translate_error(error, self._describe(message)) from None

    def _serialize(self, message: Any) -> Request:
        """Serialize `message`.

        Raises ZkError for a message that no server takes: sent, it would break the connection.
        """
        try:
            request = Request.of(message)
        except UnicodeEncodeError as error:
            raise ZkError(f"{self._describe(message)!r}: {error}") from None

        if (size_bytes := request.size_bytes) > MAX_REQUEST_BYTES:
            raise RequestTooLarge(
                f"{self._describe(message)}: {size_bytes} bytes; ZooKeeper takes no request "
                f"of more than {MAX_REQUEST_BYTES} (jute.maxbuffer)"
            )
        return request

    async def _await_reply(self, reply: "asyncio.Future[Any]") -> Any:
        """Wait for `reply`. It counts even if the loop was too busy to look at it in time."""
        try:
            await asyncio.wait([reply], timeout=self.session_timeout_ms / 1000)
            if not reply.done():
                raise TimeoutError
            return reply.result()
        finally:
            # A reply that comes later is ignored.
            reply.cancel()

    async def _await_connection(self, expirations: int) -> None:
        """Wait for a connection. It counts even if the loop was too busy to look in time."""
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                while not self._is_connected_in(expirations):
                    await self._connected.wait()
        except TimeoutError:
            if not self._is_connected_in(expirations):
                raise

    def _is_connected_in(self, expirations: int) -> bool:
        """Return whether a call can be sent now. Raises SessionExpired.

        `expirations` counts the expirations before the call was made: another number now means
        that its session has ended.
        """
        assert self._link is not None
        if self.state is SessionState.CLOSED or self._expirations != expirations:
            raise SessionExpired("the session in which the call was made has ended")

        # kazoo's thread knows before the loop that the connection is lost, or of a new session.
        if self._link.session_id != self.session_id:
            self._connected.clear()
        return self._connected.is_set()

    def _describe(self, message: Any) -> str:
        """Return the type and path of a message, for errors."""
        path = getattr(message, "path", None)
        kind = type(message).__name__
        return f"{kind} {self._remove_chroot(path)}" if path else kind

    # --- states and events --------------------------------------------------------------------

    def _on_link_state(self, now: LinkState) -> None:
        if self.state is SessionState.CLOSED:
            return

        assert self._link is not None
        state = _STATES[now.state]

        if state is SessionState.CONNECTED:
            self.session_timeout_ms = self._link.granted_timeout_ms
            self.session_id = now.session_id
            self.suspended_since_ms = None

            # Watches of the same session survive: the server fires what changed meanwhile.
            tables = self._watches.paths.values()
            self._link.set_watches(
                now.last_zxid, *([*map(self._add_chroot, paths)] for paths in tables)
            )
            self._connected.set()
        else:
            self._connected.clear()

        # The server may have received nothing since it got the last answered request.
        if state is SessionState.SUSPENDED:
            silent_s = machine_s() - now.last_answered_sent_at_s
            self.suspended_since_ms = int((asyncio.get_running_loop().time() - silent_s) * 1000)

        # The server has deleted the watches with the session.
        if state is SessionState.EXPIRED:
            self.session_id = 0
            self._expirations += 1
            self._watches.clear()

        self._set_state(state)
        # The login was refused: no connection will come.
        if state is SessionState.CLOSED:
            self._connected.set()

    def _set_state(self, state: SessionState) -> None:
        assert self.state is not SessionState.CLOSED
        self.state = state

        level = logging.WARNING if state in _WARNED_STATES else logging.INFO
        logger.log(
            level, "ZooKeeper session 0x%x at %s: %s", self.session_id, self._hosts, state.value
        )

        # A copy: a listener may add or remove listeners.
        for listener in tuple(self._listeners):
            _notify(listener, state)

    def _on_event(self, kind: int, full: str) -> None:
        event = WatchEvent(_EVENT_KINDS[kind], self._remove_chroot(full))
        for watch in self._watches.take(event):
            _notify(watch, event)

    # --- conversions between zk.api and kazoo -------------------------------------------------

    def _add_chroot(self, path: str) -> str:
        if path == "/":
            return self._chroot or "/"
        return self._chroot + path

    def _remove_chroot(self, full: str) -> str:
        return full.removeprefix(self._chroot) or "/"

    def _convert_op(self, op: Op) -> Any:
        path = self._add_chroot(op.path)
        match op:
            case Create():
                return packet.Create(path, op.data, self._acl(op.path), int(op.ephemeral))
            case SetData():
                return packet.SetData(path, op.data, op.version)
            case Delete():
                return packet.Delete(path, op.version)
            case Check():
                return packet.CheckVersion(path, op.version)

    def _convert_result(self, result: str | ZnodeStat | bool) -> str | Stat | None:
        if isinstance(result, str):
            return self._remove_chroot(result)
        if isinstance(result, ZnodeStat):
            return _convert_stat(result)
        return None


_WARNED_STATES = (SessionState.SUSPENDED, SessionState.EXPIRED)
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
    kazoo_errors.SessionMovedError: ConnectionLoss,  # to another connection, and this one ends
    kazoo_errors.UnimplementedError: ConnectionLoss,  # and the server breaks the connection
    kazoo_errors.SessionExpiredError: SessionExpired,
}
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""The results of a failed multi's operations before and after the one that failed."""


def _translate_error(error: Exception, where: str) -> ZkError:
    kind = _ERRORS.get(type(error))
    if kind is not None:
        return kind(where)
    return ZkError(f"{where}: {type(error).__name__} {error}".rstrip())


def _convert_acl(permissions: Sequence[Permission]) -> list[ACL]:
    return [
        ACL(permission.operations, Id(permission.scheme, permission.identity))
        for permission in permissions
    ]


def _convert_stat(stat: ZnodeStat) -> Stat:
    return Stat(
        version=stat.version,
        cversion=stat.cversion,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ctime_ms=stat.ctime,
        mtime_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
        num_children=stat.numChildren,
        pzxid=stat.pzxid,
    )


def _parent_path(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _notify(listener: Callable[[Any], None], event: object) -> None:
    """Call a listener or watch. Its failure is logged, so that the others are still called."""
    try:
        listener(event)
    except Exception:
        logger.exception("ZooKeeper session: %r failed on %r", listener, event)
