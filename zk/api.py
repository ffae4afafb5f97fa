"""The calls of a ZooKeeper session, their results and their errors.

`ZkSession` is a seam with two sides. `zk.session.KazooSession` is the real session,
`zk.memory.MemorySession` its twin; both pass the same tests.

A session alternates between CONNECTED and SUSPENDED while the server may still hold it. As in
Kafka's clients, only the server makes it EXPIRED. Its ephemeral nodes and watches are gone then,
and CONNECTED follows by itself, with another `session_id`. A caller that watches nodes must read
and watch them again on that CONNECTED. No watch is lost before the session expires: changes during
a suspension fire when it ends.

A member that must stop before others take over cannot wait for EXPIRED. It may use the nodes it
holds until `suspended_since_ms + session_timeout_ms` on the event loop's clock, no longer.

ConnectionLoss leaves open whether a write was applied. SessionExpired means that the session in
which the call was made has ended; the call is not repeated in the next session.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from protocol.frozen import frozen

T = TypeVar("T")

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's default jute.maxbuffer. A server breaks the connection at a larger request."""

MAX_OPS_PER_MULTI = 1000
"""Operations of one multi, which is one packet."""

MAX_BATCH_BYTES = MAX_REQUEST_BYTES // 2
"""Bound on the paths and data in a request with many operations. The other half is for what each
operation adds: a chroot and some bytes of framing."""


# --- errors -----------------------------------------------------------------------------------


class ZkError(Exception):
    """ZooKeeper refused a request, or could not do it."""


class NoNode(ZkError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(ZkError):
    """The node to create exists."""


class BadVersion(ZkError):
    """The node's version is not the one that the caller expected."""


class NotEmpty(ZkError):
    """The node to delete has children."""


class NoAuth(ZkError):
    """The ACL of the node, or of its parent, does not allow us the operation."""


class AuthFailed(ZkError):
    """ZooKeeper refuses the session's login, and will refuse it again."""


class ConnectionLoss(ZkError):
    """No response within the session timeout, or the connection broke; a write may be applied."""


class SessionExpired(ZkError):
    """The session in which the call was made has expired or was closed."""


class RequestTooLarge(ZkError):
    """The request exceeds ZooKeeper's jute.maxbuffer, and was not sent."""


class NoChroot(ZkError):
    """The chroot of zookeeper.connect does not exist."""


class MultiFailed(ZkError):
    """No operation of a multi was applied, because the one at `index` failed with `error`."""

    def __init__(self, index: int, error: ZkError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__} {error}")
        self.index = index
        self.error = error


# --- nodes, events and states -----------------------------------------------------------------


@frozen
class Stat:
    """ZooKeeper's facts about a node.

    `version` counts the writes of its data, `cversion` the children created and deleted.
    `czxid` and `mzxid` are the transactions that created it and wrote its data last, `pzxid` the
    last one that created or deleted a child. `ephemeral_owner` is a session id, or 0 for a
    persistent node.
    """

    version: int
    cversion: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    num_children: int
    pzxid: int = 0


WatchKind = Literal["created", "deleted", "changed", "children"]


class WatchEvent(NamedTuple):
    """A change of the node at `path`, or of its children."""

    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(enum.Enum):
    """The state of a session; the head of this module describes its life."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


StateListener = Callable[[SessionState], None]


# --- operations of a multi --------------------------------------------------------------------


@frozen
class Create:
    path: str
    data: bytes | None
    ephemeral: bool = False


@frozen
class SetData:
    """`version`: the expected version, -1 for any."""

    path: str
    data: bytes | None
    version: int = -1


@frozen
class Delete:
    """`version`: the expected version, -1 for any."""

    path: str
    version: int = -1


@frozen
class Check:
    """Fail the multi unless the node has this version."""

    path: str
    version: int


Op = Create | SetData | Delete | Check


def op_bytes(op: Op) -> int:
    """Return the size of an operation's path and data, without chroot and framing."""
    data = op.data if isinstance(op, Create | SetData) else None
    return path_bytes(op.path) + len(data or b"")


def path_bytes(path: str) -> int:
    """Return the size of `path` in UTF-8, without chroot and framing."""
    # A path that UTF-8 cannot encode is refused later, where the request is written.
    return len(path.encode(errors="replace"))


# --- the session ------------------------------------------------------------------------------


class ZkSession(Protocol):
    """A ZooKeeper session.

    Every call raises ConnectionLoss, SessionExpired or a ZkError of its own.
    Many calls may be in flight; the server takes them in the order they were made.

    A watch runs on the event loop, once; set twice on a node, the same callable still runs once.
    It stays set until it fires, the session ends or `remove_watch` removes it.
    """

    # --- its state ----------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The id of the session; 0 if there is none."""

    @property
    def state(self) -> SessionState: ...

    @property
    def session_timeout_ms(self) -> int:
        """The timeout granted by the server; before that, the requested one."""

    @property
    def suspended_since_ms(self) -> int | None:
        """The time at which the last answered request was sent, on the loop's clock.

        None while CONNECTED.
        """

    @property
    def silence_ms(self) -> int:
        """The age of the last answered request, counted from when it was sent.

        In a process that was stopped for a while this is right at once. The state, and timers that
        follow it, lag behind.
        """

    # --- its life -----------------------------------------------------------------------------

    async def start(self) -> None: ...

    async def close(self) -> None:
        """End the session now, and its ephemeral nodes with it."""

    def add_state_listener(self, listener: StateListener) -> None: ...

    def remove_state_listener(self, listener: StateListener) -> None: ...

    def remove_watch(self, watch: Watch) -> None:
        """Remove `watch` from every node that it is set on, if any.

        A read in flight still sets it when the response comes.
        """

    # --- reads --------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]: ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """Get each of `paths`, None where there is no node; 1000 of them in a request."""

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Return the names of the children, sorted."""

    # --- writes -------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path: with `sequence`, `path` and ten growing digits."""

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        """Apply all of `ops` or none. Raises MultiFailed.

        The result of a Create is its path, of a SetData the new Stat, of any other None. Without
        `ops` nothing is asked, so that the call succeeds in any state of the session.
        """

    async def sync(self, path: str) -> None:
        """Wait until our server has applied every write that was made before."""

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents where they are missing, with null data."""

    async def delete_recursive(self, path: str) -> None:
        """Delete `path` and all nodes under it, if it exists."""


async def get_if_there(
    zk: ZkSession, path: str, watch: Watch | None = None
) -> tuple[bytes | None, Stat] | None:
    """Get a node. Return None if there is none; `watch` is not set then."""
    try:
        return await zk.get(path, watch)
    except NoNode:
        return None


async def children_if_there(zk: ZkSession, path: str) -> list[str]:
    """Return the names of the children, none if there is no node."""
    try:
        return (await zk.children(path))[0]
    except NoNode:
        return []


def split_into_batches(
    items: Sequence[T], size_bytes: Callable[[T], int], max_items: int, max_bytes: int
) -> Iterator[Sequence[T]]:
    """Split `items`, in their order, into batches of at most `max_items` and `max_bytes`.

    An item of more than `max_bytes` gets a batch of its own.
    """
    assert max_items > 0
    start = 0
    total_bytes = 0

    for end, item in enumerate(items):
        item_bytes = size_bytes(item)
        is_full = end - start == max_items
        is_too_large = end > start and total_bytes + item_bytes > max_bytes

        # Close the batch before an item that does not fit.
        if is_full or is_too_large:
            yield items[start:end]
            start = end
            total_bytes = 0
        total_bytes += item_bytes

    if start < len(items):
        yield items[start:]


# --- watches, as both sessions keep them ------------------------------------------------------

WatchTable = Literal["data", "absent", "children"]
# The watches that an event fires, as in ZooKeeper's Java client.
_TABLES_OF_EVENT: dict[WatchKind, tuple[WatchTable, ...]] = {
    "created": ("data", "absent"),
    "changed": ("data", "absent"),
    "deleted": ("data", "absent", "children"),
    "children": ("children",),
}


class Watches:
    """The watches of one session: on the data of nodes, on absent nodes, on children of nodes."""

    def __init__(self) -> None:
        # By table and path, in the order they were set; and for each watch its places.
        self.paths: dict[WatchTable, dict[str, dict[Watch, None]]]
        self._places: dict[Watch, set[tuple[WatchTable, str]]]
        self.clear()

    def clear(self) -> None:
        """Remove all watches."""
        self.paths = {"data": {}, "absent": {}, "children": {}}
        self._places = {}

    def add(self, table: WatchTable, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self.paths[table].setdefault(path, {})[watch] = None
            self._places.setdefault(watch, set()).add((table, path))

    def remove(self, watch: Watch) -> None:
        """Remove `watch` from every node that it is set on, if any."""
        for table, path in self._places.pop(watch, ()):
            watches = self.paths[table][path]
            del watches[watch]
            if not watches:
                del self.paths[table][path]

    def take(self, event: WatchEvent) -> list[Watch]:
        """Remove the watches that `event` fires and return them, in the order they were set."""
        fired: dict[Watch, None] = {}
        for table in _TABLES_OF_EVENT[event.kind]:
            watches = self.paths[table].pop(event.path, {})
            for watch in watches:
                self._remove_place(watch, table, event.path)

            # A watch that is in two tables runs once.
            fired |= watches
        return list(fired)

    def _remove_place(self, watch: Watch, table: WatchTable, path: str) -> None:
        places = self._places[watch]
        assert (table, path) in places
        places.discard((table, path))
        if not places:
            del self._places[watch]
