"""Bounds that writers and readers of a log share: a reader can read all that a writer accepts.

An acknowledged batch stays in the log as long as the log exists. Consumers read it, so does the
cleaner, a look-up by time, and the conversion for old readers. None of them may use a smaller bound
than the leader that accepted the batch.
"""

from typing import Final

MAX_FRAME_BYTES: Final = 512 * 2**20
"""Largest response that a client or a follower accepts."""

MAX_BATCH_BYTES: Final = MAX_FRAME_BYTES - 2**20
"""Largest batch that a leader accepts, even if max.message.bytes is larger. It fits into a frame
with the response around it."""

MAX_PRODUCED_BYTES: Final = 100 * 2**20
"""Largest size of the records of a compressed batch, decompressed, when a leader accepts it.

It is what a request of socket.request.max.bytes could carry uncompressed."""

MAX_REWRITTEN_RECORDS: Final = 1_000_000
"""Most records of a batch, or of a message set, that a leader reads one by one: because it writes
them in another format, or because the topic limits their times. Each becomes an object of some 250
bytes, however few it had. In another codec they stay as they are, and have no such bound."""

MAX_DECOMPRESSED_BYTES: Final = MAX_FRAME_BYTES
"""Largest size of the records of a compressed batch, decompressed, when they are read, and
therefore also when they are compressed.

It is larger than what a leader accepts: other brokers have written logs without such a bound, and
records grow when they are converted to an older format.

Raising it makes batches readable that were not readable before. The cleaner keeps an unreadable
batch and the tombstones after it. Once the batch is readable, those tombstones could be removed
before the batch is, so a log in which the cleaner kept such batches must then count as dirty from
its start."""

MAX_REQUEST_ELEMENTS: Final = 250_000
"""Most elements of all arrays of a request of a client, with its tagged fields: more than a cluster
that is kept in ZooKeeper has partitions. Each takes about a microsecond to read."""

MAX_CHANGING_ELEMENTS: Final = 50_000
"""Most elements of a request that changes something: it is served whole, in one turn of the loop,
and takes some microseconds for each."""

MAX_FOLLOWED_ELEMENTS: Final = 2 * MAX_REQUEST_ELEMENTS
"""Most elements of a follower's fetch: it may fetch from all partitions of a cluster, each of a
topic of its own."""

MAX_HEADER_TAGS: Final = 1000
"""Most tagged fields of the header of a request or response. Kafka's have none so far."""

MAX_STRING_BYTES: Final = 2**15 - 1
"""Longest string of a message, whether its length has two bytes or is a varint."""

MAX_ERROR_CHARACTERS: Final = 4_000
"""Longest text of an error in a response, with a few more where it is shortened. In UTF-8 that is
less than MAX_STRING_BYTES."""

MAX_ARRAY_BYTES: Final = 2**31 - 1
"""Largest byte array of Kafka. It is the only bound of the tools that show what is on a disk."""
