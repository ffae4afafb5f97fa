"""A partition that checks its invariants after every step."""

from __future__ import annotations

from typing import Any

import attrs

from broker.replication.isr import Isr
from broker.replication.partition import IsrProposal, Partition
from core_log.appending.appended import LogAppendInfo
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState


@attrs.define(eq=False)
class CheckedPartition(Partition):
    """A partition whose methods that change it end with `check`."""

    def take_state(self, state: LeaderAndIsrRequestPartitionState, monotonic_ms: int) -> None:
        super().take_state(state, monotonic_ms)
        self.check()

    def stop(self) -> None:
        super().stop()
        self.check()

    def append(self, *arguments: Any, **keywords: Any) -> LogAppendInfo:
        appended = super().append(*arguments, **keywords)
        self.check()
        return appended

    def advance_high_watermark(self, monotonic_ms: int) -> bool:
        has_moved = super().advance_high_watermark(monotonic_ms)
        self.check()
        return has_moved

    def note_follower_fetch(self, *arguments: Any, **keywords: Any) -> bool:
        has_moved = super().note_follower_fetch(*arguments, **keywords)
        self.check()
        return has_moved

    def propose_isr(self, isr: Isr) -> IsrProposal:
        change = super().propose_isr(isr)
        self.check()
        return change

    def confirm_isr(self, isr: Isr, zk_version: int) -> None:
        super().confirm_isr(isr, zk_version)
        self.check()

    def give_up_isr(self) -> None:
        super().give_up_isr()
        self.check()

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        super().follow_watermarks(high_watermark, log_start_offset)
        self.check()

    def note_truncation(self) -> None:
        super().note_truncation()
        self.check()

    def note_new_start(self) -> None:
        super().note_new_start()
        self.check()
