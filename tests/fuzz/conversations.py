"""Draw what strangers do with a connection, from a seed: a way in, and the frames sent then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum

import attrs

from tests.fuzz.frames import Frame, draw_frame
from tests.fuzz.login_frames import draw_again, draw_login


class Way(Enum):
    """The way of a connection to its first drawn frame."""

    PLAINTEXT = "the listener without logins"
    BEFORE_LOGIN = "the listener of logins, at its door"
    IN_LOGIN = "the same, with half a login by SCRAM behind it"
    LOGGED_IN = "the same, in a session without an end"
    SESSION_ENDS = "the same, in a session that ends some time"
    SESSION_OVER = "the same, in a session that is over"
    TLS = "the listener of TLS, encrypted"
    BROKEN_RECORDS = "the same, with records that are bent after the handshake"
    BROKEN_HANDSHAKE = "the same, with a bent handshake, or none"


WEIGHTS = {
    Way.PLAINTEXT: 50,
    Way.BEFORE_LOGIN: 30,
    Way.IN_LOGIN: 8,
    Way.LOGGED_IN: 8,
    Way.SESSION_ENDS: 6,
    Way.SESSION_OVER: 4,
    Way.TLS: 5,
    Way.BROKEN_RECORDS: 5,
    Way.BROKEN_HANDSHAKE: 8,
}
"""Of conversations: those at the door have few frames."""

FRAMES = 20


@attrs.frozen
class Conversation:
    """A way in, and frames. `seed` is for what can be bent only when the broker has answered."""

    way: Way
    frames: tuple[Frame, ...]
    seed: int


def draw_conversations(seed: int) -> Iterator[Conversation]:
    """Yield conversations without end; the same ones for the same seed."""
    rng = random.Random(seed)
    ways, weights = [*WEIGHTS], [*WEIGHTS.values()]
    while True:
        way = rng.choices(ways, weights)[0]
        yield Conversation(way, tuple(_frames(rng, way)), rng.randrange(2**32))


def _frames(rng: random.Random, way: Way) -> list[Frame]:
    if way is Way.BEFORE_LOGIN:
        return draw_login(rng)
    if way is Way.SESSION_ENDS:
        return draw_again(rng)
    if way is Way.SESSION_OVER:
        return [draw_frame(rng)] if rng.random() < 0.5 else draw_login(rng)
    if way is Way.BROKEN_HANDSHAKE:
        return [draw_frame(rng)]
    count = rng.choice((1, 3)) if way in (Way.IN_LOGIN, Way.BROKEN_RECORDS) else FRAMES
    return [draw_frame(rng) for _ in range(count)]
