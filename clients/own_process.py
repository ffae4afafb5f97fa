"""The process that a client belongs to: a forked child has neither its threads nor its sockets."""

from __future__ import annotations

import os

import attrs

from clients.errors import OtherProcess

_forks = 0
"""The number of forks between the first process and this one."""


def _note_fork() -> None:
    global _forks
    _forks += 1


# Where processes are forked at all.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


@attrs.define(eq=False)
class OwnProcess:
    """Knows the process in which it was made."""

    _forks: int = attrs.field(factory=lambda: _forks)

    @property
    def is_this(self) -> bool:
        """False in a forked child."""
        return self._forks == _forks

    def check(self) -> None:
        """Raise OtherProcess in a forked child."""
        # Its loop's thread is not there, and what it reads the parent does not get
        # (fault users-14).
        if not self.is_this:
            raise OtherProcess(
                "this client belongs to the process that was forked: a child cannot use its "
                "connections; make a client in the child, after the fork"
            )
