"""The file beside a log that says of which topic it is: `topic-identity`.

    version: 0
    topic_id: rI0PvrWuTxmUcxWV8Zn3fA       16 bytes in base64url
    pinned: false                          whether the id stood in the topic's znode
    topics_czxid: 4294967300               the transaction that created /brokers/topics
    topic_czxid: 4294967337                the transaction that created the topic's znode
    cluster_czxid: 4294967302              that of /cluster/id, and its time in ms
    cluster_ctime_ms: 1400000000000

It is written when a log is created, and for a log without one, or with an older one, after it is
served. It is synced with the log's first flush, so records that are safe from a power loss are of a
known topic; to sync two files of each new log would take ten times as long as to create it.

Kafka ignores it, as all files of a log whose names it does not know. `partition.metadata`, in which
Kafka from 2.8 on keeps an id, is left as it is.
"""

from __future__ import annotations

import logging

from core_log.storage import Directory, StorageFile
from core_log.value_lines import decode_values, get_number, get_text, require_version
from protocol.topic_identity import TopicIdentity, decode_id, encode_id

TOPIC_IDENTITY = "topic-identity"
TEMPORARY = TOPIC_IDENTITY + ".tmp"
VERSION = 0

logger = logging.getLogger(__name__)


def read_identity(directory: Directory) -> TopicIdentity | None:
    """Read the identity beside a log; None without one, or if it cannot be read. Raises OSError."""
    data = directory.read(TOPIC_IDENTITY)
    if data is None:
        return None
    try:
        return decode_identity(data)
    except ValueError as error:
        # A power loss may leave a file without its bytes.
        logger.warning("%s/%s is ignored: %s", directory.path, TOPIC_IDENTITY, error)
        return None


def write_identity(directory: Directory, identity: TopicIdentity) -> StorageFile:
    """Write the identity beside a log. Raises OSError.

    It is in force after a kill. A power loss may leave the old file, none or an empty one until
    the file and its directory are synced.
    """
    is_new = directory.size(TOPIC_IDENTITY) is None
    name = TOPIC_IDENTITY if is_new else TEMPORARY
    if not is_new:
        directory.remove(TEMPORARY)

    file = directory.open_segment(name)
    file.append([encode_identity(identity)])
    if not is_new:
        directory.rename(TEMPORARY, TOPIC_IDENTITY)
    return file


def encode_identity(identity: TopicIdentity) -> bytes:
    """Return the bytes of the file."""
    lines = {
        "version": VERSION,
        "topic_id": encode_id(identity.topic_id),
        "pinned": str(identity.is_pinned).lower(),
        "topics_czxid": identity.topics_czxid,
        "topic_czxid": identity.topic_czxid,
        "cluster_czxid": identity.cluster_czxid,
        "cluster_ctime_ms": identity.cluster_ctime_ms,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items()).encode()


def decode_identity(data: bytes) -> TopicIdentity:
    """Read the bytes of the file. Raises ValueError."""
    values = decode_values(data)
    require_version(values, VERSION)
    topic_id = decode_id(get_text(values, "topic_id"))
    if topic_id is None:
        raise ValueError(f"{values['topic_id']!r} is not the id of a topic")
    return TopicIdentity(
        topic_id=topic_id,
        is_pinned=get_text(values, "pinned") == "true",
        topic_czxid=get_number(values, "topic_czxid"),
        cluster_czxid=get_number(values, "cluster_czxid"),
        cluster_ctime_ms=get_number(values, "cluster_ctime_ms"),
        topics_czxid=get_number({"topics_czxid": "0", **values}, "topics_czxid"),
    )
