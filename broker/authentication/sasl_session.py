"""The session of a connection on a SASL listener: it performs what `gate` decides."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from broker.authentication.gate import (
    AwaitingHandshake,
    AwaitingToken,
    Gate,
    Open,
    Refuse,
    Respond,
    State,
    decide,
)
from broker.network.session import ANONYMOUS, Principal, SessionRefused
from protocol.frozen import frozen
from protocol.metrics import Counter, Metrics

logger = logging.getLogger(__name__)


@frozen
class LoginCounts:
    """Counts the logins of a listener that succeeded and failed."""

    succeeded: Counter
    failed: Counter
    succeeded_again: Counter
    failed_again: Counter
    expired: Counter

    @classmethod
    def of(cls, metrics: Metrics, listener: str) -> LoginCounts:
        """Take the counters of a listener from the figures of its broker."""
        names = (
            "successful_authentications_total",
            "failed_authentications_total",
            "successful_reauthentications_total",
            "failed_reauthentications_total",
            "expired_connections_killed_total",
        )
        return cls(*(metrics.counter(name, listener=listener) for name in names))

    def by_result(self) -> dict[str, Counter]:
        """Return the counters by the results of logins, as they are named in figures."""
        return {
            "success": self.succeeded,
            "failure": self.failed,
            "renewed": self.succeeded_again,
            "not_renewed": self.failed_again,
            "expired": self.expired,
        }


@frozen
class SaslLimits:
    """The bounds of logins: the bytes of a frame, and how late a refusal is."""

    max_receive_bytes: int
    failure_delay_ms: int


@attrs.define(eq=False)
class SaslSession:
    """The session of one connection."""

    gate: Gate
    limits: SaslLimits
    counts: LoginCounts
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    principal: Principal = ANONYMOUS
    takes_frames: bool = True
    max_frame_bytes: int | None = None
    _state: State = attrs.field(factory=AwaitingHandshake)

    def __attrs_post_init__(self) -> None:
        self.max_frame_bytes = self.limits.max_receive_bytes

    def receive(self, frame: memoryview) -> bytes | None:
        """Take a step of a login; None if the frame is a request. Raises SessionRefused."""
        try:
            decision = decide(self.gate, self._state, frame, self.now_ms(), self.monotonic_ms())
        except Exception:
            # Our bug: nobody is let in by it, and the client is not left waiting.
            logger.exception("a login failed unexpectedly")
            decision = Refuse("a login failed unexpectedly; the error is logged above")

        if isinstance(decision, Refuse):
            self._count_refusal(decision)
            delay_ms = self.limits.failure_delay_ms if decision.is_delayed else 0
            raise SessionRefused(decision.reason, decision.response, delay_ms)

        previous = self._state
        self._state = decision.state
        if not isinstance(decision, Respond):
            return None
        self._note_state(previous, decision.state)
        return decision.frame

    def _note_state(self, previous: State, state: State) -> None:
        """Take over what a step of the login has changed."""
        # A session without an end lets all frames through, and costs nothing more.
        is_open = isinstance(state, Open)
        self.max_frame_bytes = None if is_open else self.limits.max_receive_bytes
        if isinstance(state, Open):
            self.principal = Principal("User", state.user)
            self.takes_frames = state.ends_ms is not None
            is_again = isinstance(previous, AwaitingToken) and previous.previous is not None
            (self.counts.succeeded_again if is_again else self.counts.succeeded).add()

    def _count_refusal(self, refusal: Refuse) -> None:
        if refusal.is_expiry:
            self.counts.expired.add()
        elif isinstance(self._state, AwaitingToken) and self._state.previous is not None:
            self.counts.failed_again.add()
        elif not isinstance(self._state, Open):
            self.counts.failed.add()
