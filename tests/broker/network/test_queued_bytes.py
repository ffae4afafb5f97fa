"""Who is read while memory is short."""

from __future__ import annotations

import attrs

from broker.network.queued_bytes import READ_BYTES, QueuedBytes, Reader, default_queued_bytes

LIMIT = 4 * READ_BYTES


@attrs.define(eq=False)
class Connection:
    """One that is told whether to be read."""

    name: str
    queued: QueuedBytes
    is_brokers: bool = False
    was_read: bool = False
    in_frame: bool = False
    is_read: bool = True

    def hold_back(self) -> None:
        self.is_read = False

    def let_on(self) -> None:
        self.is_read = True

    def holds(self, size: int, in_frame: bool = False) -> None:
        """So much of it is kept now."""
        self.was_read, self.in_frame = True, in_frame
        self.queued.update(self, size)


_: Reader = Connection("", QueuedBytes(0))


def connections(names: str, queued: QueuedBytes) -> list[Connection]:
    """Made in this order, and each was read once."""
    made = [Connection(name, queued, was_read=True) for name in names]
    for connection in made:
        queued.add(connection)
    return made


def read(*made: Connection) -> str:
    return "".join(connection.name for connection in made if connection.is_read)


def test_up_to_the_limit_all_are_read_and_beyond_it_none() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    a.holds(LIMIT - 1)
    b.holds(1)
    assert read(a, b, c) == "abc"
    b.holds(2)
    assert read(a, b, c) == ""
    assert queued.total == LIMIT + 1


def test_those_of_brokers_are_read_on() -> None:
    a, b, broker = connections("abB", QueuedBytes(LIMIT))
    broker.is_brokers = True
    a.holds(LIMIT + 1)
    assert read(a, b, broker) == "B"


def test_a_connection_just_made_is_read_once() -> None:
    """Nobody knows before that the controller calls."""
    queued = QueuedBytes(LIMIT)
    (a,) = connections("a", queued)
    a.holds(LIMIT + 1)
    new = Connection("n", queued)
    queued.add(new)
    a.holds(LIMIT + 2)
    assert read(a, new) == "n"
    new.holds(100)
    assert read(a, new) == ""


def test_the_oldest_go_on_first_as_many_as_there_is_room_for() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c, d, e = connections("abcde", queued)
    a.holds(LIMIT + 1)
    a.holds(LIMIT - 2 * READ_BYTES)
    assert read(a, b, c, d, e) == "ab"
    b.holds(READ_BYTES)
    assert read(a, b, c, d, e) == "abc"
    c.holds(READ_BYTES + 1)
    assert read(a, b, c, d, e) == ""
    a.holds(0)
    assert read(a, b, c, d, e) == "d"


def test_where_nothing_moves_those_behind_go_on_in_time() -> None:
    queued = QueuedBytes(LIMIT)
    made = connections("abcde", queued)
    made[0].holds(LIMIT + 1)
    made[0].holds(LIMIT)
    for let_on in range(1, 6):
        assert len(read(*made)) == let_on
        queued.pass_on()


def test_of_frames_that_fill_the_limit_the_oldest_comes_to_its_end() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c, idle = connections("abci", queued)
    for connection in (a, b, c):
        connection.holds(2 * READ_BYTES, in_frame=True)
    assert read(a, b, c, idle) == "a"
    a.holds(4 * READ_BYTES, in_frame=True)
    assert read(a, b, c, idle) == "a"
    a.holds(4 * READ_BYTES)  # whole, and its request waits
    assert read(a, b, c, idle) == "b"
    a.holds(0)
    b.holds(0)
    assert read(a, b, c, idle) == "abci"


def test_who_sends_nothing_while_it_is_let_on_gives_way() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    for connection in (a, b, c):
        connection.holds(2 * READ_BYTES, in_frame=True)
    queued.pass_on()
    a.holds(2 * READ_BYTES + 1, in_frame=True)
    queued.pass_on()
    assert read(a, b, c) == "a", "it has sent something"
    queued.pass_on()
    assert read(a, b, c) == "b"
    queued.pass_on()
    queued.pass_on()
    assert read(a, b, c) == "c"
    queued.pass_on()
    queued.pass_on()
    assert read(a, b, c) == "a"


def test_what_a_lost_connection_held_is_free_again() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    b.holds(1)
    a.holds(LIMIT, in_frame=True)
    assert read(a, b, c) == "a"
    queued.remove(a)
    assert queued.total == 1
    assert read(b, c) == "bc"


def test_default_is_a_quarter_of_the_memory_and_one_gigabyte_at_most() -> None:
    assert default_queued_bytes(2 * 1024**3) == 512 * 1024**2
    assert default_queued_bytes(64 * 1024**3) == 1024**3
