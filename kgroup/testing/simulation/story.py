"""Tell what happened to a cluster so that it can be read, and name what may happen to a process."""

from __future__ import annotations

from broker.cluster.registration import AlreadyRegistered
from clients.errors import KgroupError
from kgroup.testing import story
from kgroup.testing.story import listed
from protocol.errors import ApiError
from zk.api import ZkError

EXPECTED = (OSError, KgroupError, ApiError, ZkError, TimeoutError)
"""What may befall a process when others fail; anything else is a bug of its own."""


class Story(story.Story):
    """The story of a cluster."""

    again: str = ""
    """The command, where there is one, that tells this story again."""

    def tell_once(self, who: str, what: str) -> None:
        """Add a line that is not there already at this time."""
        last = self.told and self.line(*self.told[-1])
        if last != self.line(self.now_s(), who, what):
            self.tell(who, what)

    def expects(self, error: BaseException) -> bool:
        """Return whether a process may log this exception."""
        return isinstance(error, EXPECTED)

    def expects_stop(self, error: BaseException) -> bool:
        """Return whether a broker may give up on this."""
        return isinstance(error, (*EXPECTED, AlreadyRegistered))

    def transcript(self) -> str:
        """Return the whole story in words."""
        lines = [
            f"seed {self.seed}",
            *self.lines(),
            f"faults: {listed(self.faults) or 'none'}",
            f"bites: {listed(self.bites) or 'none'}",
            f"counts: {listed(self.counts) or 'none'}",
        ]
        return "\n".join([*lines, f"again: {self.again}"] if self.again else lines)
