"""Bounds that writers and readers of a log share: what the one takes in, the others can read again.

A batch that is acknowledged lies in the log for as long as the log does, and is read by consumers,
by the cleaner, where a time is looked up, and where it is converted for old readers. So none of
these may hold it to less than the leader did that took it.
"""

from typing import Final

MAX_FRAME_BYTES: Final = 512 * 2**20
"""Largest response that a client, or a follower, accepts."""

MAX_BATCH_BYTES: Final = MAX_FRAME_BYTES - 2**20
"""Largest batch that a leader takes, whatever max.message.bytes says: with a response around it, it
fits in a frame."""

MAX_PRODUCED_BYTES: Final = 100 * 2**20
"""Most bytes that the records of a compressed batch may come to when a leader takes it: as many as
a request of socket.request.max.bytes could carry plain."""

MAX_DECOMPRESSED_BYTES: Final = MAX_FRAME_BYTES
"""Most bytes that the records of a compressed batch may come to when they are read, and therefore
when they are compressed. It is more than a leader takes, because some logs were written by brokers
that knew no such bound, and because records grow when they are written anew in an older format.

Where this is raised, batches can be opened that could not before. The cleaner keeps such a batch,
and the tombstones behind it; once it can be opened those may go before it does. So a log in which
batches were kept must count as dirty from its beginning then."""

MAX_ARRAY_BYTES: Final = 2**31 - 1
"""Most bytes of anything that Kafka keeps in one piece. Tools that show what lies on a disk have no
other bound."""
