"""Admin, the values that it takes and returns, lag, and resets that are written to the journal."""

from clients.admin import (
    EARLIEST_TIME,
    LATEST_TIME,
    PREFERRED,
    UNCLEAN,
    Admin,
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    GroupListing,
    GroupMemberId,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    TopicDescription,
    TopicPartitionReplica,
)
from clients.group_lag import lag
from clients.group_records import read_group_records
from clients.journal import Journal
from clients.journal_entry import JournalEntry, Status
from clients.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.reset import ResetPlan, plan_reset
from clients.reset_plan import Named, ShiftBy, ToOffset, ToOffsets, ToTime
from clients.sessions import Sessions
from clients.topic_scope import TopicScope

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "PREFERRED",
    "UNCLEAN",
    "Admin",
    "Change",
    "ClusterDescription",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "GroupMemberId",
    "Journal",
    "JournalEntry",
    "JournalledOffsets",
    "ListedOffset",
    "LogDirDescription",
    "Named",
    "NewPartitions",
    "NewTopic",
    "Outcome",
    "PartitionReassignment",
    "ResetPlan",
    "Sessions",
    "ShiftBy",
    "Status",
    "ToOffset",
    "ToOffsets",
    "ToTime",
    "TopicDescription",
    "TopicPartitionReplica",
    "TopicScope",
    "lag",
    "plan_reset",
    "read_group_records",
]
