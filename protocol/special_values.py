"""Numbers that stand for something else in requests, responses and records.

Source: the comments of Kafka's message schemas, and the classes named beside.
"""

EARLIEST_TIME = -2
"""Asks ListOffsets for the log start offset (ListOffsetsRequest)."""
LATEST_TIME = -1
"""Asks ListOffsets for the high watermark, or the last stable offset (ListOffsetsRequest)."""

READ_COMMITTED = 1
"""Isolation level of Fetch and ListOffsets: no record of an open or aborted transaction."""

UNKNOWN_OFFSET = -1
"""An offset that the sender does not know (FetchResponse)."""

NO_LEADER = -1
"""The leader of a partition without one (LeaderAndIsr)."""
LEADER_DURING_DELETE = -2
"""The leader of a partition that is being deleted (LeaderAndIsr)."""

PREFERRED = 0
"""Elects the first replica, if it is in sync (ElectLeadersRequest)."""
UNCLEAN = 1
"""Elects any living replica where none in sync is left (ElectLeadersRequest)."""

MAX_LONG = 2**63 - 1
"""Java's Long.MAX_VALUE: a rate, size or time without a limit."""
