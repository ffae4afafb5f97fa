"""ZooKeeper in memory: the twin of `KazooSession` for tests and simulations, without clock or I/O.

It passes the tests of the real session, and never suspends a coroutine. A test decides here what
the network decides there: `suspend`, `resume`, `expire`, and `lose_reply` for a write that is
applied and gets no reply.

The tree follows ZooKeeper's own PrepRequestProcessor and DataTree. Every transaction gets the next
zxid. A node's cversion counts the children created and deleted. A sequential name ends in the
number of children ever created there.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import attrs

from protocol.frozen import frozen
from zk.api import (
    MAX_REQUEST_BYTES,
    BadVersion,
    Check,
    ConnectionLoss,
    Create,
    Delete,
    MultiFailed,
    NoAuth,
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
    ZkError,
    op_bytes,
)


@frozen
class _Node:
    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int  # of the last child created or deleted
    ctime_ms: int
    mtime_ms: int
    version: int = 0
    children: frozenset[str] = frozenset()
    children_created: int = 0
    ephemeral_owner: int = 0

    @property
    def stat(self) -> Stat:
        return Stat(
            version=self.version,
            # Creations plus deletions. Deletions are the creations less the present children.
            cversion=2 * self.children_created - len(self.children),
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            ephemeral_owner=self.ephemeral_owner,
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


SERVER_SESSION_ID = 0
"""The session of the server's own transactions, to which no ACL applies."""

_Tree = dict[str, _Node]
_PATH = re.compile(
    r"(?: / (?! \.\.? (?:/|$) ) [^/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+ )+", re.VERBOSE
)
"""The paths that ZooKeeper's PathUtils accepts."""


class MemoryZooKeeper:
    """A tree and its sessions. `now_ms` is the clock of nodes and suspensions.

    No session may set a node in `read_only`, nor create or delete a child of it, as with an ACL
    that gives the world only READ.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.zxid = 0
        self.read_only: set[str] = set()
        self.tree: _Tree = {"/": _Node(None, 0, 0, 0, 0, 0)}
        self._sessions: list[MemorySession] = []
        self._last_session_id = 0

    def session(self, session_timeout_ms: int = 6000) -> "MemorySession":
        """Return a new session, which is not started yet."""
        session = MemorySession(self, session_timeout_ms)
        self._sessions.append(session)
        return session

    def suspend(self, session: "MemorySession") -> None:
        """Break the connection: the session's calls fail, its nodes stay, its watches wait."""
        if session.state is SessionState.CONNECTED:
            session.suspended_since_ms = self.now_ms()
            session.seen_zxid = self.zxid
            session.set_state(SessionState.SUSPENDED)

    def resume(self, session: "MemorySession") -> None:
        """Reconnect: as the same session, or as a new one if it expired meanwhile."""
        if session.state is not SessionState.SUSPENDED:
            return

        # An expired session is EXPIRED first, and then another session.
        if session.server_expired:
            session.end()
            session.set_state(SessionState.EXPIRED)
            self.open(session)
        else:
            session.suspended_since_ms = None
            session.set_state(SessionState.CONNECTED)
            session.fire_missed_events(self.tree)

    def expire(self, session: "MemorySession") -> None:
        """End the session at the server. A suspended session becomes EXPIRED when it resumes."""
        was_connected = session.state is SessionState.CONNECTED

        # Suspend first: the session does not see its own nodes go.
        self.suspend(session)
        session.server_expired = True
        self.delete_ephemerals(session.session_id)
        if was_connected:
            self.resume(session)

    def lose_reply(self, session: "MemorySession") -> None:
        """Suspend the session after its next write, which is applied and raises ConnectionLoss."""
        session.loses_next_reply = True

    def open(self, session: "MemorySession") -> None:
        """Connect as a new session, with the next id."""
        self._last_session_id += 1
        session.session_id = self._last_session_id
        session.server_expired = False
        session.suspended_since_ms = None
        session.set_state(SessionState.CONNECTED)

    def delete_ephemerals(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session, in one transaction."""
        paths = [path for path, node in self.tree.items() if node.ephemeral_owner == session_id]

        # 0 is the owner of all persistent nodes.
        if session_id and paths:
            self.commit([Delete(path) for path in sorted(paths)], SERVER_SESSION_ID)

    def commit(self, ops: Sequence[Op], session_id: int) -> list[str | Stat | None]:
        """Apply all of `ops` as one transaction, then fire watches. Raises MultiFailed."""
        # On a copy: if one operation fails, nothing has happened.
        draft = _Draft(dict(self.tree), self.zxid + 1, self.now_ms(), session_id, self.read_only)
        results: list[str | Stat | None] = []
        for index, op in enumerate(ops):
            try:
                results.append(draft.apply(op))
            except ZkError as error:
                raise MultiFailed(index, error) from None

        self.tree = draft.tree
        self.zxid = draft.zxid

        # Watches fire when the transaction is done, in the order of its operations.
        for event in draft.events:
            for session in self._sessions:
                session.fire_watches(event)
        return results


@attrs.define(eq=False)
class _Draft:
    """The tree and the events that the transaction `zxid` leads to if it succeeds."""

    tree: _Tree
    zxid: int
    now_ms: int
    session_id: int
    read_only: set[str]
    events: list[WatchEvent] = attrs.field(factory=list)

    def apply(self, op: Op) -> str | Stat | None:
        match op:
            case Create():
                return self._create(op)
            case SetData():
                return self._set(op)
            case Delete():
                self._delete(op)
            case Check():
                self._node(op)
        return None

    def _create(self, op: Create) -> str:
        if not _PATH.fullmatch(op.path):
            raise ZkError(f"{op.path!r} is not a path")

        # The checks are in the server's order.
        parent_path, name = _split(op.path)
        parent = self.tree.get(parent_path)
        if parent is None:
            raise NoNode(op.path)
        self._check_writable(parent_path, op.path)
        if op.path in self.tree:
            raise NodeExists(op.path)
        if parent.ephemeral_owner:
            raise ZkError(f"{op.path}: an ephemeral node has no children")

        self.tree[op.path] = _Node(
            data=op.data,
            czxid=self.zxid,
            mzxid=self.zxid,
            pzxid=self.zxid,
            ctime_ms=self.now_ms,
            mtime_ms=self.now_ms,
            ephemeral_owner=self.session_id if op.ephemeral else 0,
        )
        self.tree[parent_path] = attrs.evolve(
            parent,
            pzxid=self.zxid,
            children=parent.children | {name},
            children_created=parent.children_created + 1,
        )

        self.events += [WatchEvent("created", op.path), WatchEvent("children", parent_path)]
        return op.path

    def _set(self, op: SetData) -> Stat:
        self._check_writable(op.path, op.path)
        # The ACL comes before the version.
        before = self._node(op)
        after = attrs.evolve(
            before,
            data=op.data,
            version=before.version + 1,
            mzxid=self.zxid,
            mtime_ms=self.now_ms,
        )

        self.tree[op.path] = after
        self.events.append(WatchEvent("changed", op.path))
        return after.stat

    def _delete(self, op: Delete) -> None:
        parent_path, name = _split(op.path)
        self._check_writable(parent_path, op.path)
        # The version comes before the children, as in PrepRequestProcessor.
        if self._node(op).children:
            raise NotEmpty(op.path)

        parent = self.tree[parent_path]
        del self.tree[op.path]
        self.tree[parent_path] = attrs.evolve(
            parent, pzxid=self.zxid, children=parent.children - {name}
        )

        self.events += [WatchEvent("deleted", op.path), WatchEvent("children", parent_path)]

    def _check_writable(self, path: str, op_path: str) -> None:
        """Raise NoAuth for a node in `read_only`.

        The server checks the ACL before versions and children.
        """
        if self.session_id == SERVER_SESSION_ID:
            return
        if path in self.read_only and path in self.tree:
            raise NoAuth(op_path)

    def _node(self, op: SetData | Delete | Check) -> _Node:
        node = self.tree.get(op.path)
        if node is None:
            raise NoNode(op.path)
        if op.version not in (-1, node.version):
            raise BadVersion(op.path)
        return node


class MemorySession:
    """A ZkSession on a MemoryZooKeeper, which alone uses the methods that ZkSession does not have.

    While SUSPENDED its calls fail at once, because no connection can come while they wait.
    """

    def __init__(self, zookeeper: MemoryZooKeeper, session_timeout_ms: int) -> None:
        self._zookeeper = zookeeper
        self.session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self.state = SessionState.SUSPENDED
        self.suspended_since_ms: int | None = None

        self.seen_zxid = 0  # the last transaction before the suspension
        self.server_expired = False
        self.loses_next_reply = False

        self._watches = Watches()
        self._listeners: list[StateListener] = []

    @property
    def silence_ms(self) -> int:
        since_ms = self.suspended_since_ms
        return 0 if since_ms is None else self._zookeeper.now_ms() - since_ms

    async def start(self) -> None:
        assert self.session_id == 0, "a session starts once"
        assert self.state is not SessionState.CLOSED
        self._zookeeper.open(self)

    async def close(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        # Closed first: the watches of this session do not fire for its own nodes.
        self.set_state(SessionState.CLOSED)
        self._zookeeper.delete_ephemerals(self.session_id)
        self.end()

    def add_state_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_state_listener(self, listener: StateListener) -> None:
        self._listeners.remove(listener)

    def remove_watch(self, watch: Watch) -> None:
        self._watches.remove(watch)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        # A read that fails sets no watch.
        node = self._node(path)
        self._watches.add("data", path, watch)
        return node.data, node.stat

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        if not paths:
            return []
        tree = self._tree()
        return [(node.data, node.stat) if (node := tree.get(path)) else None for path in paths]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        node = self._tree().get(path)
        self._watches.add("data" if node else "absent", path, watch)
        return node.stat if node else None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        node = self._node(path)
        self._watches.add("children", path, watch)
        return sorted(node.children), node.stat

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        parent_path, _ = _split(path)
        if make_parents:
            await self.ensure_path(parent_path)

        if sequence:
            path = f"{path}{self._node(parent_path).children_created:010d}"

        self._write(Create(path, data, ephemeral))
        return path

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        stat = self._write(SetData(path, data, version))
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        self._write(Delete(path, version))

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        return self._commit(ops) if ops else []

    async def sync(self, path: str) -> None:
        self._tree()

    async def ensure_path(self, path: str) -> None:
        # The root is always there: nothing is asked about it, and this comes to an end.
        if path != "/" and path not in self._tree():
            await self.ensure_path(_split(path)[0])
            self._write(Create(path, None))

    async def delete_recursive(self, path: str) -> None:
        tree = self._tree()
        subtree = [node_path for node_path in tree if f"{node_path}/".startswith(f"{path}/")]

        # In reverse order children come before their parents.
        for node_path in sorted(subtree, reverse=True):
            self._write(Delete(node_path))

    # --- for MemoryZooKeeper ------------------------------------------------------------------

    def set_state(self, state: SessionState) -> None:
        assert self.state is not SessionState.CLOSED
        self.state = state

        # A copy: a listener may add or remove listeners.
        for listener in tuple(self._listeners):
            listener(state)

    def end(self) -> None:
        """Remove the watches and the id of a session that has ended."""
        self.session_id = 0
        self._watches.clear()

    def fire_watches(self, event: WatchEvent) -> None:
        """Fire the watches of `event`, unless the session is suspended."""
        if self.state is SessionState.CONNECTED:
            for watch in self._watches.take(event):
                watch(event)

    def fire_missed_events(self, tree: _Tree) -> None:
        """Fire the events of the suspension, as the server does on SetWatches."""
        # Collect first: watches that fire change the tables.
        for event in tuple(self._find_missed_events(tree)):
            self.fire_watches(event)

    def _find_missed_events(self, tree: _Tree) -> Iterable[WatchEvent]:
        paths = self._watches.paths
        # What has changed since has a later transaction than the last one seen.
        for path in paths["data"]:
            if path not in tree:
                yield WatchEvent("deleted", path)
            elif tree[path].mzxid > self.seen_zxid:
                yield WatchEvent("changed", path)

        for path in paths["absent"]:
            if path in tree:
                yield WatchEvent("created", path)

        for path in paths["children"]:
            if path not in tree:
                yield WatchEvent("deleted", path)
            elif tree[path].pzxid > self.seen_zxid:
                yield WatchEvent("children", path)

    # --- the tree -----------------------------------------------------------------------------

    def _tree(self) -> _Tree:
        """Return the tree. Raises SessionExpired, ConnectionLoss."""
        if self.state is SessionState.CLOSED:
            raise SessionExpired("the session is closed")
        if self.state is not SessionState.CONNECTED:
            raise ConnectionLoss("the session is suspended")
        return self._zookeeper.tree

    def _node(self, path: str) -> _Node:
        node = self._tree().get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _write(self, op: Op) -> str | Stat | None:
        try:
            return self._commit([op])[0]
        except MultiFailed as failed:
            raise failed.error from None

    def _commit(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        self._tree()
        if (size_bytes := sum(map(op_bytes, ops))) > MAX_REQUEST_BYTES:
            raise RequestTooLarge(f"{ops[0].path}: {size_bytes} bytes")

        results = self._zookeeper.commit(ops, self.session_id)
        # The write is applied: only its reply is lost.
        if self.loses_next_reply:
            self.loses_next_reply = False
            self._zookeeper.suspend(self)
            raise ConnectionLoss("the reply was lost")
        return results


def _split(path: str) -> tuple[str, str]:
    """Split a path into its parent and its last name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name
