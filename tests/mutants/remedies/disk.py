"""Remedies in logs on disk: segments, truncation, retention, failures."""

from tests.mutants.remedy import Remedy

PRODUCERS = "tests/core_log/test_log_producers.py tests/core_log/test_producer_state.py"

TESTS: dict[str, str] = {
    "core_log.segment": PRODUCERS,
    "core_log.producer_history": PRODUCERS,
    "core_log.producer_state": PRODUCERS,
    "core_log.leader_epochs": "tests/core_log/test_leader_epochs.py tests/core_log/test_log.py",
    "core_log.guard": "tests/core_log/test_out_of_descriptors.py",
    "core_log.log": "tests/core_log/test_out_of_descriptors.py",
    "core_log.log_dir": "tests/core_log/test_checkpoint_race.py",
    "broker.log_work": "tests/broker/test_log_work.py tests/broker/test_control_work.py",
    "broker.lost_log": "tests/broker/test_control_work.py",
    "broker.control_work": "tests/broker/test_control_work.py",
    "broker.housekeeping": "tests/broker/test_housekeeping.py",
}
"""By module: the tests that notice, where a remedy names none."""

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        "P1",
        "an index that was loaded is cut, and not made anew",
        "core_log.segment:Segment._ends_are_of_log",
        "offsets.is_proven or self._is_of_log(offsets.last())",
        "offsets.is_proven",
    ),
    Remedy(
        "P1",
        "the latest timestamp is looked for behind the last indexed batch",
        "core_log.segment:Segment.reload_latest",
        "scan(self.log, self.offset_index.last().position)",
        "scan(self.log)",
    ),
    Remedy(
        "P1",
        "producers are taken back in memory",
        "core_log.producer_history:ProducerHistory.truncate_to",
        "not self.state.truncate_to(offset)",
        "True",
    ),
    Remedy(
        "P1",
        "what memory does not tell of a producer is read again",
        "core_log.producer_state:Producer.truncate_to",
        "not kept or self.marker.offset >= offset",
        "False",
    ),
    Remedy(
        "P1",
        "a log is lent to one at a time",
        "broker.log_work:LogWork.lend",
        "log.is_lent = True",
        "pass",
    ),
    Remedy(
        "P1",
        "a log is lent until its thread has ended",
        "broker.log_work:LogWork.lend",
        "running.done()",
        "True",
    ),
    Remedy(
        "P1",
        "a partition keeps its role until its log is back",
        "broker.control_work:ControlWork._lead_and_follow",
        "await self.work.until_back(self.replicas.known_logs(_names(states)))",
        "pass",
    ),
    Remedy(
        "P4",
        "epochs that are cut off are not written at once",
        "core_log.leader_epochs:LeaderEpochs.truncate_from_start",
        "self.entries = kept",
        "self.entries = kept\nself.save()",
        "tests/broker/test_delete_records.py",
    ),
    Remedy(
        "P4",
        "files of segments are marked in a thread",
        "broker.housekeeping:Housekeeping._retain_log",
        "await self.work.in_thread(retention.run)",
        "retention.run()",
    ),
    Remedy(
        "P11",
        "a read that finds no descriptor ends nothing",
        "core_log.log:Log.read",
        "self.guard.reading",
        "self.guard",
    ),
    Remedy(
        "P11",
        "a lack of descriptors says nothing against a disk",
        "core_log.log_dir:LogDir.note",
        "error.errno not in INNOCENT",
        "True",
        "tests/core_log/test_out_of_descriptors.py",
    ),
    Remedy(
        "P12",
        "a log of an earlier topic of the same name is not served",
        "broker.lost_log:is_left_over",
        "log.leader_epochs.latest_epoch > state.leader_epoch",
        "False",
    ),
    Remedy(
        "P12",
        "what the cluster counts on is never taken for a leftover",
        "broker.lost_log:is_left_over",
        "not is_trusted(state, local_id)",
        "True",
    ),
    Remedy(
        "P19",
        "a checkpoint that is being written is waited for",
        "core_log.log_dir:LogDir._lower",
        "self._one_writer",
        "nullcontext()",
    ),
)
