"""Administer a cluster, and ask what the commands know: groups, verdicts, history, resets.

docs/kgroup-library.md has an example of each.
"""

from clients.admin import (
    EARLIEST_TIME,
    LATEST_TIME,
    PREFERRED,
    UNCLEAN,
    AclBinding,
    AclEntry,
    AclFilter,
    Admin,
    ClusterDescription,
    ConfigResource,
    FencedProducer,
    GroupDescription,
    GroupListing,
    GroupMemberId,
    HangingTransactions,
    LastTransaction,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    OpenTransaction,
    Operation,
    PartitionReassignment,
    PatternType,
    Permission,
    ProducerState,
    ResourcePattern,
    ResourceType,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    TopicDescription,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
    find_hanging_transactions,
)
from clients.admin.client_quotas import ANY, Matches, QuotaEntity
from clients.admin.descriptions import SettingValue, UserChange
from clients.admin.verdicts import Verdicts
from clients.command_line.sessions import Sessions
from clients.command_line.topic_scope import TopicScope
from clients.groups.group_lag import lag
from clients.groups.group_reader import GroupReader
from clients.groups.group_records import read_group_records
from clients.groups.offset_rows import read_offset_rows
from clients.resets.journal import Journal
from clients.resets.journal_entry import JournalEntry, Status
from clients.resets.journalled_offsets import Change, JournalledOffsets, Outcome
from clients.resets.reset import ResetPlan, plan_reset
from clients.resets.reset_plan import Named, ShiftBy, ToOffset, ToOffsets, ToTime
from clients.resets.undo import Undone, undo
from clients.watching.assignment_simulation import SimulatedMember, Simulation, simulate
from clients.watching.commit_history import Commit, as_of
from clients.watching.history import History, judge_groups, read_history
from clients.watching.offset_risk import find_risks
from clients.watching.offsets_topic import OffsetsTopicReading
from clients.watching.offsets_topic_verdict import judge_topic
from clients.watching.simulation_scene import Scene, read_scene
from protocol.messages.describe_configs import DescribeConfigsResponseConfig

__all__ = [
    "ANY",
    "EARLIEST_TIME",
    "LATEST_TIME",
    "PREFERRED",
    "UNCLEAN",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "Admin",
    "Change",
    "ClusterDescription",
    "Commit",
    "ConfigResource",
    "DescribeConfigsResponseConfig",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMemberId",
    "GroupReader",
    "HangingTransactions",
    "History",
    "Journal",
    "JournalEntry",
    "JournalledOffsets",
    "LastTransaction",
    "ListedOffset",
    "LogDirDescription",
    "Matches",
    "Named",
    "NewPartitions",
    "NewTopic",
    "OffsetsTopicReading",
    "OpenTransaction",
    "Operation",
    "Outcome",
    "PartitionReassignment",
    "PatternType",
    "Permission",
    "ProducerState",
    "QuotaEntity",
    "ResetPlan",
    "ResourcePattern",
    "ResourceType",
    "Scene",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "Sessions",
    "SettingValue",
    "ShiftBy",
    "SimulatedMember",
    "Simulation",
    "Status",
    "ToOffset",
    "ToOffsets",
    "ToTime",
    "TopicDescription",
    "TopicPartitionReplica",
    "TopicScope",
    "TransactionDescription",
    "TransactionListing",
    "Undone",
    "UserChange",
    "Verdicts",
    "as_of",
    "find_hanging_transactions",
    "find_risks",
    "judge_groups",
    "judge_topic",
    "lag",
    "plan_reset",
    "read_group_records",
    "read_history",
    "read_offset_rows",
    "read_scene",
    "simulate",
    "undo",
]
