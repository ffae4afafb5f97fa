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
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_lag import lag
from clients.groups.group_records import read_group_records
from clients.resets.journal import Journal
from clients.resets.journal_entry import JournalEntry, Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.reset import ResetPlan, plan_reset
from clients.resets.reset_plan import Named, ShiftBy, ToOffset, ToOffsets, ToTime

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
