"""Connections that are read while memory is short."""

from __future__ import annotations

import attrs
import pytest

from broker.network.queued_bytes import (
    CLIENT_FREE_BYTES,
    READ_BYTES,
    WEIGHED_PART,
    QueuedBytes,
    Reader,
    default_queued_bytes,
)

LIMIT = 4 * READ_BYTES


@attrs.define(eq=False)
class Connection:
    """A connection that notes whether it is read."""

    name: str
    queued: QueuedBytes
    is_brokers: bool = False
    was_read: bool = False
    is_in_frame: bool = False
    is_stranger: bool = False
    client: str = attrs.field(init=False)
    has_unread: bool = True
    is_read: bool = True
    is_served: bool = True

    def __attrs_post_init__(self) -> None:
        self.client = self.name

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def serve_again(self) -> None:
        self.is_served = True

    def serve(self) -> bool:
        """Try to be served."""
        self.is_served = self.queued.may_serve(self)
        return self.is_served

    def holds(self, size: int, is_in_frame: bool = False, unsent: int = 0) -> None:
        """Keep so many bytes."""
        self.was_read = True
        self.is_in_frame = is_in_frame
        self.queued.update(self, size, unsent)


_: Reader = Connection("", QueuedBytes(0))


def connections(names: str, queued: QueuedBytes) -> list[Connection]:
    """Make connections in this order, all of which have been read once."""
    made = [Connection(name, queued, was_read=True) for name in names]
    for connection in made:
        queued.add(connection)
    return made


def read(*made: Connection) -> str:
    return "".join(connection.name for connection in made if connection.is_read)


def of_client(name: str, made: list[Connection]) -> list[Connection]:
    """Have connections that hold nothing be of one client."""
    for connection in made:
        connection.client = name
        connection.queued.remove(connection)
        connection.queued.add(connection)
    return made


def crowd(queued: QueuedBytes) -> list[Connection]:
    """Make clients that hold as much as the limit together, each too little to be weighed."""
    made = [Connection(f"of a crowd {number}", queued) for number in range(WEIGHED_PART)]
    for connection in made:
        queued.add(connection)
        connection.holds(queued.limit // WEIGHED_PART)
    return made


def test_beyond_the_limit_none_is_read() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    crowd(queued)
    b.holds(1)
    assert read(a, b, c) == ""
    assert queued.total == LIMIT + 1


@pytest.mark.fault("strangers-5")
def test_what_one_client_holds_beyond_its_share_is_not_counted_against_the_others() -> None:
    """Nobody can make it take its responses."""
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    a.holds(3 * LIMIT)
    assert read(a, b, c) == "bc"
    b.holds(LIMIT // 3)
    assert read(a, b, c) == "bc"
    b.holds(LIMIT // 2 + 1)
    assert read(a, b, c) == "c"
    c.holds(LIMIT // 3)
    assert read(a, b, c) == ""
    c.holds(LIMIT // 4 - 1)
    assert read(a, b, c) == "c"
    b.holds(0)
    assert read(a, b, c) == "bc"
    assert queued.total == 3 * LIMIT + LIMIT // 4 - 1


@pytest.mark.fault("strangers-5")
def test_many_that_hold_very_much_leave_room_for_one_more() -> None:
    queued = QueuedBytes(LIMIT)
    greedy = connections("abcdefghijkl", queued)
    (other,) = connections("o", queued)
    for connection in greedy:
        connection.holds(LIMIT)
    other.holds(LIMIT // 14)
    assert read(*greedy, other) == "o"
    other.holds(LIMIT // 13)
    assert read(*greedy, other) == ""


@pytest.mark.fault("strangers-6")
def test_client_is_served_again_when_it_has_taken_responses() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, new = of_client("greedy", connections("abn", queued))
    (other,) = connections("o", queued)
    room: list[str] = []
    queued.when_room.append(lambda: room.append("!"))
    # Requests make room when they are served.
    a.holds(2 * LIMIT)
    assert b.serve()
    a.holds(2 * LIMIT, unsent=LIMIT // 2 + 1)
    assert (b.serve(), new.serve(), other.serve()) == (False, False, True)
    assert (queued.has_room_for("greedy"), queued.has_room_for("o")) == (False, True)
    a.holds(LIMIT, unsent=LIMIT // 2)
    assert (b.is_served, new.is_served, a.serve(), room) == (True, True, True, ["!"])
    assert not queued.holds_back


def test_the_log_names_a_client_once_that_goes_on_taking_no_responses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queued = QueuedBytes(LIMIT)
    (a,) = connections("a", queued)
    queued.rotate()
    a.holds(LIMIT, unsent=LIMIT)
    a.holds(0)
    queued.rotate()
    a.holds(LIMIT, unsent=LIMIT)
    queued.rotate()
    assert caplog.messages == []
    for _ in range(5):
        queued.rotate()
    assert caplog.messages == [
        f"a does not take its responses, {LIMIT} bytes: until it does, its requests wait "
        "(queued.max.request.bytes)"
    ]


@pytest.mark.fault("strangers-6")
def test_brokers_and_who_logs_in_are_served_whatever_others_hold() -> None:
    queued = QueuedBytes(LIMIT)
    a, broker, stranger = of_client("greedy", connections("abs", queued))
    broker.is_brokers = stranger.is_stranger = True
    broker.holds(2 * LIMIT, unsent=2 * LIMIT)
    assert a.serve(), "brokers take their responses"
    a.holds(2 * LIMIT, unsent=2 * LIMIT)
    assert (a.serve(), broker.serve(), stranger.serve()) == (False, True, True)
    # It waits as the address, not as the user that it is now.
    a.client = "alice"
    a.holds(0)
    assert a.is_served


@pytest.mark.fault("strangers-6")
def test_no_client_is_held_back_for_good_when_those_who_did_not_take_responses_are_gone() -> None:
    queued = QueuedBytes(LIMIT)
    a, b = of_client("greedy", connections("ab", queued))
    a.holds(LIMIT, unsent=LIMIT)
    assert not b.serve()
    queued.remove(a)
    assert b.is_served
    b.holds(LIMIT, unsent=LIMIT)
    queued.remove(b)
    assert not queued.holds_back


def test_client_has_half_of_the_limit_and_others_are_read_on() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = of_client("greedy", connections("abc", queued))
    other = connections("o", queued)
    a.holds(LIMIT // 4)
    b.holds(LIMIT // 4)
    assert read(a, b, c, *other) == "abco"
    b.holds(LIMIT // 4 + 1)
    assert read(a, b, c, *other) == "o"
    b.holds(0)
    assert read(a, b, c, *other) == "abo"
    a.holds(0)
    assert read(a, b, c, *other) == "abco"


def test_client_has_as_much_as_others_leave_free_so_that_there_is_room_for_one_more() -> None:
    queued = QueuedBytes(12 * LIMIT)
    a, b, c = connections("abc", queued)
    a.holds(6 * LIMIT)
    b.holds(3 * LIMIT)
    assert read(a, b, c) == "abc"
    b.holds(4 * LIMIT)
    a.holds(6 * LIMIT + 1)
    assert read(a, b, c) == "bc"
    c.holds(LIMIT)
    b.holds(4 * LIMIT + 1)
    assert read(a, b, c) == "c"


def test_turn_to_be_read_again_goes_round_over_clients() -> None:
    queued = QueuedBytes(LIMIT)
    greedy = of_client("greedy", connections("abcdef", queued))
    other = connections("o", queued)
    crowd(queued)
    (last,) = connections("l", queued)
    last.holds(1)
    last.holds(0)
    assert read(*greedy, *other) == "a"
    queued.rotate()
    assert read(*greedy, *other) == "ao"


def test_what_a_client_has_left_behind_is_of_its_share() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = of_client("greedy", connections("abc", queued))
    other = connections("o", queued)
    a.holds(LIMIT // 2 + 1)
    let_go = queued.keep(a, LIMIT // 2 + 1)
    queued.remove(a)
    assert read(b, c, *other) == "o"
    let_go()
    assert read(b, c, *other) == "bco"


def test_who_logs_in_takes_what_it_holds_along() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = of_client("host", connections("abc", queued))
    a.client = "alice"
    a.holds(LIMIT // 2 + 1)
    assert read(a, b, c) == "bc"
    b.holds(LIMIT // 4)
    a.client = "host"
    a.holds(LIMIT // 2)
    assert read(a, b, c) == ""
    queued.remove(a)
    assert read(b, c) == "bc"


def test_those_of_brokers_are_read_on() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, broker = connections("abB", queued)
    broker.is_brokers = True
    crowd(queued)
    a.holds(1)
    assert read(a, b, broker) == "B"


def test_a_connection_just_made_is_read_once() -> None:
    """Its first request shows whether it is the controller's."""
    queued = QueuedBytes(LIMIT)
    (a,) = connections("a", queued)
    crowd(queued)
    a.holds(1)
    new = Connection("n", queued)
    queued.add(new)
    a.holds(2)
    assert read(a, new) == "n"
    new.holds(100)
    assert read(a, new) == ""


def test_the_oldest_go_on_first_as_many_as_there_is_room_for() -> None:
    queued = QueuedBytes(2 * READ_BYTES * WEIGHED_PART)
    a, b, c, d, e = connections("abcde", queued)
    *_, other, last = crowd(queued)
    a.holds(1)
    assert read(a, b, c, d, e) == ""
    a.holds(0)
    assert read(a, b, c, d, e) == "a"
    last.holds(0)
    assert read(a, b, c, d, e) == "abc"
    c.holds(2 * READ_BYTES)
    b.holds(1)
    assert read(a, b, c, d, e) == ""
    other.holds(0)
    assert read(a, b, c, d, e) == "e"


def test_where_nothing_moves_those_behind_go_on_in_time() -> None:
    queued = QueuedBytes(LIMIT)
    made = connections("abcde", queued)
    crowd(queued)
    (last,) = connections("l", queued)
    last.holds(1)
    last.holds(0)
    for behind in ("a", "ab", "abc", "abcd", "abcde", "abcde"):
        assert read(*made) == behind
        queued.rotate()


def test_of_frames_that_fill_the_limit_the_oldest_comes_to_its_end() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c, idle = connections("abci", queued)
    for connection in (a, b, c):
        connection.holds(2 * READ_BYTES, is_in_frame=True)
    assert read(a, b, c, idle) == "ai"
    a.holds(4 * READ_BYTES, is_in_frame=True)
    assert read(a, b, c, idle) == "ai"
    a.holds(4 * READ_BYTES)  # whole, and its request waits
    assert read(a, b, c, idle) == "bi"
    a.holds(0)
    b.holds(0)
    assert read(a, b, c, idle) == "abci"


def test_who_sends_nothing_while_it_is_let_on_gives_way() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    for connection in (a, b, c):
        connection.holds(2 * READ_BYTES, is_in_frame=True)
    queued.rotate()
    a.holds(2 * READ_BYTES + 1, is_in_frame=True)
    queued.rotate()
    assert read(a, b, c) == "a", "it has sent something"
    queued.rotate()
    assert read(a, b, c) == "b"
    queued.rotate()
    queued.rotate()
    assert read(a, b, c) == "c"
    queued.rotate()
    queued.rotate()
    assert read(a, b, c) == "a"


def test_what_a_lost_connection_held_is_free_again() -> None:
    queued = QueuedBytes(LIMIT)
    a, b = connections("ab", queued)
    lost, *_ = crowd(queued)
    b.holds(1)
    assert read(a, b) == ""
    queued.remove(lost)
    assert queued.total == LIMIT - LIMIT // WEIGHED_PART + 1
    assert read(a, b) == "a"


def test_what_connections_have_left_behind_counts_until_it_is_let_go() -> None:
    queued = QueuedBytes(LIMIT)
    (b,) = connections("b", queued)
    gone, *_ = crowd(queued)
    part = LIMIT // WEIGHED_PART
    let_go = queued.keep(gone, part)
    queued.remove(gone)
    assert (queued.total, read(b)) == (LIMIT, "b")
    b.holds(1)
    assert read(b) == ""
    let_go()
    assert (queued.total, read(b)) == (LIMIT - part + 1, "b")


# ---- incomplete frames


@pytest.mark.fault("security-2")
def test_while_whole_requests_fill_the_limit_no_other_is_completed() -> None:
    """Or one frame after the other would be, and each wait with the others."""
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    for connection in (a, b, c):
        connection.holds(2 * READ_BYTES, is_in_frame=True)
    crowd(queued)
    a.holds(1)
    assert read(a, b, c) == ""
    for _ in range(5):
        queued.rotate()
    assert read(a, b, c) == ""
    a.holds(0)
    assert "b" in read(a, b, c)


@pytest.mark.fault("security-2")
def test_incomplete_frames_never_keep_those_between_frames_from_being_read() -> None:
    queued = QueuedBytes(LIMIT)
    made = connections("abcdefgh", queued)
    other = Connection("o", queued, was_read=True)
    queued.add(other)
    for connection in made:
        connection.has_unread = False
        connection.holds(LIMIT, is_in_frame=True)
    assert read(*made, other) == "ao"
    other.holds(LIMIT // 4)
    assert read(other) == "o"

    # What makes room by itself does: its part is what incomplete frames leave.
    other.holds(LIMIT)
    assert read(other) == ""


@pytest.mark.fault("security-2")
def test_strangers_delay_strangers_alone() -> None:
    queued = QueuedBytes(16 * LIMIT)
    strangers = connections("abc", queued)
    clients = connections("xyz", queued)
    for stranger in strangers:
        stranger.is_stranger = True
        stranger.holds(LIMIT, is_in_frame=True)
    for client in clients:
        client.holds(LIMIT, is_in_frame=True)
    assert read(*strangers, *clients) == "axyz"
    assert queued.total == 6 * LIMIT


@pytest.mark.fault("security-2")
def test_address_of_strangers_has_a_share_beyond_which_it_is_read_no_further() -> None:
    queued = QueuedBytes(16 * LIMIT)
    a, b, c, d = connections("abcd", queued)
    for stranger in (a, b, c, d):
        stranger.is_stranger, stranger.client = True, "host"
    d.client = "another"
    for stranger in (a, b, c):
        stranger.holds(LIMIT // 2, is_in_frame=True)
    d.holds(LIMIT // 4, is_in_frame=True)
    assert read(a, b, c, d) == "abcd", "the last one is the favoured one"
    a.holds(LIMIT // 2 + 1, is_in_frame=True)
    b.holds(LIMIT // 2 + 1, is_in_frame=True)
    assert read(a, b, c, d) == "cd"


def test_frames_that_are_small_are_read_whatever_others_hold() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    for connection in (a, b):
        connection.has_unread = False
        connection.holds(LIMIT, is_in_frame=True)
    c.holds(CLIENT_FREE_BYTES, is_in_frame=True)
    assert read(a, b, c) == "ac"
    c.has_unread = False
    c.holds(CLIENT_FREE_BYTES + 1, is_in_frame=True)
    assert read(a, b, c) == "a"


def test_silent_favoured_one_gives_way_to_who_has_sent_more() -> None:
    queued = QueuedBytes(LIMIT)
    a, b, c = connections("abc", queued)
    for connection in (a, b, c):
        connection.has_unread = False
        connection.holds(2 * READ_BYTES, is_in_frame=True)
    assert read(a, b, c) == "a"
    c.has_unread = True
    a.holds(2 * READ_BYTES + 1, is_in_frame=True)
    assert read(a, b, c) == "c"


def test_who_logs_in_is_no_stranger_any_more() -> None:
    queued = QueuedBytes(LIMIT)
    a, b = connections("ab", queued)
    a.is_stranger = True
    a.holds(LIMIT // 8, is_in_frame=True)
    a.is_stranger = False
    a.holds(0)
    a.holds(LIMIT // 8, is_in_frame=True)
    b.holds(LIMIT // 8, is_in_frame=True)
    assert read(a, b) == "ab"
    assert queued.total == LIMIT // 4


def test_default_is_a_quarter_of_the_memory_and_one_gigabyte_at_most() -> None:
    assert default_queued_bytes(2 * 1024**3) == 512 * 1024**2
    assert default_queued_bytes(64 * 1024**3) == 1024**3
