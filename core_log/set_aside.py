"""Logs of earlier topics: set aside for a while, so that nothing is lost by a mistake.

A log whose topic was deleted, and whose name another topic has, gets a name of its own beside the
others (`directory_name`). It is not opened, and is removed after SET_ASIDE_MS, if that is still
certain then. The file `set-aside` in it has the time, in ms since 1970, and the topic. A topic may
have such a name too: without the file the log is that topic's, and is served.
"""

from __future__ import annotations

from core_log.storage import Directory
from core_log.topic_identity_file import read_identity
from protocol.frozen import frozen
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

SET_ASIDE = "set-aside"
SET_ASIDE_DAYS = 7
SET_ASIDE_MS = SET_ASIDE_DAYS * 86_400_000


@frozen
class SetAsideLog:
    """A log that is set aside, whose time is over. `path` is that of its log directory."""

    path: str
    name: str
    topic_partition: TopicPartition
    identity: TopicIdentity | None
    """That of its topic, if it stands beside the log."""

    def may_be_removed(self, topic: TopicIdentity | None, *, has_successor: bool) -> bool:
        """Return whether nobody can miss it. `topic` is the one that has the name now, if any.

        With a `has_successor` the partition of that topic has a log of its own here.
        """
        if topic is None:
            return True
        is_certain = self.identity is not None and topic.is_surely_another(self.identity)
        return is_certain and has_successor


def note_set_aside(directory: Directory, topic: str, now_ms: int | None) -> None:
    """Note in the directory of a log of a topic that it is set aside now. Raises OSError.

    Where nobody knows the time, None, it begins when somebody looks at it.
    """
    time = "" if now_ms is None else str(now_ms)
    directory.write_atomic(SET_ASIDE, f"{time}\n{topic}\n".encode())


def is_set_aside(directory: Directory) -> bool:
    """Return whether the log in a directory with such a name is set aside. Raises OSError."""
    return directory.read(SET_ASIDE) is not None


def read_if_over(
    directory: Directory, path: str, named: TopicPartition, now_ms: int
) -> SetAsideLog | None:
    """Return the log in a directory if it was set aside long enough ago. Raises OSError.

    `named` is the partition of the directory's name. Its topic may be shortened.
    """
    # The name alone may be that of a topic (fault core-R1).
    if not is_set_aside(directory):
        return None
    noted, _, topic = (directory.read(SET_ASIDE) or b"").decode(errors="replace").partition("\n")
    topic = topic.strip() or named.topic.rsplit(".", 2)[0]
    # A start has noted it, or somebody by hand: its time begins now.
    if not (noted.isascii() and noted.strip().isdigit()):
        note_set_aside(directory, topic, now_ms)
        return None
    if now_ms - int(noted) < SET_ASIDE_MS:
        return None
    partition = TopicPartition(topic, named.partition)
    return SetAsideLog(path, directory.name, partition, read_identity(directory))
