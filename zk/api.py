"""What the system asks of ZooKeeper: the calls of a session, their results and their errors.

`ZkSession` is the seam with two sides: `zk.session.KazooSession` is the real one,
`zk.memory.MemorySession` its twin; both pass the same tests.

Life of a session: CONNECTED and SUSPENDED alternate while the server may still hold the session.
Only the server's word makes it EXPIRED, as in Kafka's clients; ephemeral nodes and watches are gone
then, and CONNECTED follows by itself with another `session_id`. Whoever watches must read and watch
again on that CONNECTED. Until expiry no watch is lost: what changed during a suspension is told
when it ends.

A member that must stop before others take over can't wait for that word: it is entitled to what it
holds until `suspended_since_ms + session_timeout_ms` on the event loop's clock, no longer.

ConnectionLoss leaves open whether a write was applied. SessionExpired means that the session in
which the call was made has ended; the call is not carried over into the next one.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

import attrs

T = TypeVar("T")

MAX_REQUEST_BYTES = 0xFFFFF
"""ZooKeeper's jute.maxbuffer, as servers have it unless told otherwise: at a larger request they
break the connection."""
MAX_BATCH_BYTES = MAX_REQUEST_BYTES // 2
"""Of paths and data in a request of many; with each go a chroot and some bytes around it."""


class ZkError(Exception):
    """Something ZooKeeper refused, or could not do."""


class NoNode(ZkError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(ZkError):
    """The node to create is there already."""


class BadVersion(ZkError):
    """The node's version is not the one the caller expected."""


class NotEmpty(ZkError):
    """The node to delete has children."""


class NoAuth(ZkError):
    """The node's ACL, or that of the parent, does not allow it to us."""


class ConnectionLoss(ZkError):
    """No answer within the session timeout, or the connection broke; a write may be applied."""


class SessionExpired(ZkError):
    """The session in which the call was made has expired or was closed."""


class RequestTooLarge(ZkError):
    """The request is larger than ZooKeeper takes (jute.maxbuffer), and was not sent."""


class NoChroot(ZkError):
    """The chroot of zookeeper.connect does not exist."""


class MultiFailed(ZkError):
    """No operation of a multi was applied, because the one at `index` failed with `error`."""

    def __init__(self, index: int, error: ZkError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__} {error}")
        self.index = index
        self.error = error


@attrs.frozen
class Stat:
    """`cversion` counts created and deleted children; `ephemeral_owner` is 0 or a session id."""

    version: int
    cversion: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    num_children: int


WatchKind = Literal["created", "deleted", "changed", "children"]


class WatchEvent(NamedTuple):
    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], None]


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


StateListener = Callable[[SessionState], None]


@attrs.frozen
class Create:
    path: str
    data: bytes | None
    ephemeral: bool = False


@attrs.frozen
class SetData:
    path: str
    data: bytes | None
    version: int = -1


@attrs.frozen
class Delete:
    path: str
    version: int = -1


@attrs.frozen
class Check:
    path: str
    version: int


Op = Create | SetData | Delete | Check


def op_bytes(op: Op) -> int:
    """How much of a multi `op` takes, without the chroot and what is around it."""
    data = op.data if isinstance(op, Create | SetData) else None
    return path_bytes(op.path) + len(data or b"")


def path_bytes(path: str) -> int:
    """How long `path` is on the wire."""
    return len(path.encode(errors="replace"))


class ZkSession(Protocol):
    """One session. Every call raises ConnectionLoss, SessionExpired or a ZkError of its own.

    Many calls may be in flight; the server takes them in the order they were made. Watches are
    one-shot, run on the event loop, and the same callable set twice on a node runs once. A watch
    stays set until it fires, the session ends or `remove_watch` takes it back.
    """

    @property
    def session_id(self) -> int:
        """0 when there is none."""

    @property
    def state(self) -> SessionState: ...

    @property
    def session_timeout_ms(self) -> int:
        """What the server granted; before it has, what was asked for."""

    @property
    def suspended_since_ms(self) -> int | None:
        """When that was sent which the server answered last, on the loop's clock; None while
        CONNECTED."""

    @property
    def silence_ms(self) -> int:
        """How long ago that was sent which the server answered last. Unlike the state, and timers
        that follow it, this is true at once in a process that was stopped for a while."""

    async def start(self) -> None: ...
    async def close(self) -> None:
        """End the session, and its ephemeral nodes with it, now."""

    def add_state_listener(self, listener: StateListener) -> None: ...
    def remove_state_listener(self, listener: StateListener) -> None: ...
    def remove_watch(self, watch: Watch) -> None:
        """Take `watch` off every node; nothing happens when it is on none. A read that is still in
        flight sets it when it is answered."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]: ...
    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None: ...
    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes | None, Stat] | None]:
        """`get` of each, None where there is no node, in one request for 1000 of them."""

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """The names of the children, sorted."""

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """The path of the new node: with `sequence`, `path` and ten digits that only grow."""

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat: ...
    async def delete(self, path: str, version: int = -1) -> None: ...
    async def multi(self, ops: Sequence[Op]) -> list[str | Stat | None]:
        """All of `ops` or none: Create's path, SetData's Stat, else None. Raises MultiFailed."""

    async def sync(self, path: str) -> None:
        """Until the server connected to has seen all that was written before."""

    async def ensure_path(self, path: str) -> None:
        """Create what is missing of `path`, with null data."""

    async def delete_recursive(self, path: str) -> None:
        """Delete `path` and all under it; nothing happens when it isn't there."""


async def get_if_there(
    zk: ZkSession, path: str, watch: Watch | None = None
) -> tuple[bytes | None, Stat] | None:
    """`get`; None where there is no node, and then nothing is watched."""
    try:
        return await zk.get(path, watch)
    except NoNode:
        return None


async def children_if_there(zk: ZkSession, path: str) -> list[str]:
    """The names of the children, none where there is no node."""
    try:
        return (await zk.children(path))[0]
    except NoNode:
        return []


def batches(
    items: Sequence[T], size_bytes: Callable[[T], int], most: int, max_bytes: int
) -> Iterator[Sequence[T]]:
    """Split `items`, in their order, into as few requests as hold `most` and `max_bytes` each; an
    item that is larger alone gets one of its own."""
    start = total_bytes = 0
    for end, item in enumerate(items):
        item_bytes = size_bytes(item)
        if end - start == most or (end > start and total_bytes + item_bytes > max_bytes):
            yield items[start:end]
            start, total_bytes = end, 0
        total_bytes += item_bytes
    if start < len(items):
        yield items[start:]


WatchTable = Literal["data", "absent", "children"]
_WAKES: dict[WatchKind, tuple[WatchTable, ...]] = {
    "created": ("data", "absent"),
    "changed": ("data", "absent"),
    "deleted": ("data", "absent", "children"),
    "children": ("children",),
}


class Watches:
    """What one session watches: nodes' data, nodes that were absent, nodes' children."""

    def __init__(self) -> None:
        self.paths: dict[WatchTable, dict[str, dict[Watch, None]]]
        self._places: dict[Watch, set[tuple[WatchTable, str]]]
        self.clear()

    def clear(self) -> None:
        self.paths = {"data": {}, "absent": {}, "children": {}}
        self._places = {}

    def add(self, table: WatchTable, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self.paths[table].setdefault(path, {})[watch] = None
            self._places.setdefault(watch, set()).add((table, path))

    def remove(self, watch: Watch) -> None:
        """Take `watch` off every node."""
        for table, path in self._places.pop(watch, ()):
            watching = self.paths[table][path]
            del watching[watch]
            if not watching:
                del self.paths[table][path]

    def take(self, event: WatchEvent) -> list[Watch]:
        """Who is to be told of `event`, each once, in the order they asked; they watch no more."""
        woken: dict[Watch, None] = {}
        for table in _WAKES[event.kind]:
            watching = self.paths[table].pop(event.path, {})
            for watch in watching:
                self._leave(watch, table, event.path)
            woken |= watching
        return list(woken)

    def _leave(self, watch: Watch, table: WatchTable, path: str) -> None:
        places = self._places[watch]
        places.discard((table, path))
        if not places:
            del self._places[watch]
