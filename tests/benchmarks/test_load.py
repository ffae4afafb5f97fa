"""The load driver sends requests and counts their responses."""

import socket
import threading

import pytest

from benchmarks.load import FrameCounter, LoadError, RequestRing, ask, drive, pace


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_whole_frames_in_one_chunk_are_counted() -> None:
    assert FrameCounter().count(memoryview(frame(b"abc") + frame(b"de"))) == 2


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 4, 5, 7, 100])
def test_frames_are_counted_where_they_end_however_they_are_cut(chunk_bytes: int) -> None:
    stream = frame(b"a" * 9) + frame(b"b" * 300) + frame(b"c") + frame(b"d" * 20)
    frames = FrameCounter()
    ends = [13, 13 + 304, 13 + 304 + 5, 13 + 304 + 5 + 24]
    counted = 0
    for start in range(0, len(stream), chunk_bytes):
        chunk = memoryview(stream)[start : start + chunk_bytes]
        counted += frames.count(chunk)
        assert counted == sum(end <= start + len(chunk) for end in ends)


def test_requests_of_a_ring_follow_each_other_past_its_end() -> None:
    ring = RequestRing([b"one", b"two", b"three"], max_count=4)

    assert [bytes(ring.take(n)) for n in (2, 4, 1)] == [b"onetwo", b"threeonetwothree", b"one"]


def test_a_ring_of_one_request_gives_it_as_often_as_is_asked() -> None:
    ring = RequestRing([b"x"], max_count=5)

    assert [bytes(ring.take(n)) for n in (5, 1, 3)] == [b"xxxxx", b"x", b"xxx"]


class EchoServer:
    """A server that responds to each frame with the same frame, and counts them."""

    def __init__(self, close_after: int = 1 << 60) -> None:
        self.responses = 0
        self._close_after = close_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as stream:
            while self.responses < self._close_after and len(head := stream.read(4)) == 4:
                connection.sendall(head + stream.read(int.from_bytes(head, "big")))
                self.responses += 1

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


def test_every_request_that_was_sent_is_answered_and_counted() -> None:
    server = EchoServer()

    driven = drive(server.address, [[frame(b"ping"), frame(b"pong!")]], outstanding=3, seconds=0.1)

    server.close()
    assert driven.total_responses == server.responses
    assert 0 < driven.responses <= server.responses - 3
    assert driven.seconds >= 0.1


def test_a_server_that_closes_ends_the_load_in_an_error() -> None:
    server = EchoServer(close_after=5)

    with pytest.raises((LoadError, ConnectionError)):
        drive(server.address, [[frame(b"ping")]], outstanding=2, seconds=5)

    server.close()


def test_one_question_gets_its_one_answer() -> None:
    server = EchoServer()

    with socket.create_connection(server.address) as connection:
        assert ask(connection, frame(b"hello")) == b"hello"

    server.close()


def test_requests_at_a_pace_are_all_sent_and_their_answers_timed() -> None:
    server = EchoServer()

    times_s = pace(server.address, frame(b"ping"), per_second=500, seconds=0.1)

    server.close()
    assert server.responses == len(times_s) == 50
    assert all(0 < seconds < 10 for seconds in times_s)


def test_a_server_that_closes_ends_the_pace_in_an_error() -> None:
    server = EchoServer(close_after=5)

    with pytest.raises((LoadError, ConnectionError)):
        pace(server.address, frame(b"ping"), per_second=500, seconds=5)

    server.close()
