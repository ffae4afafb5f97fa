"""Which tests are fast: those of pure code, which `make test-fast` runs without the others.

A test is fast unless its id begins as one in SLOW, or it takes a fixture that starts a process. In
a run of the fast tests alone each of them is watched: one that opens a connection or starts a
process fails, and belongs into SLOW. What is slow as a whole is not even collected then.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import Any

PROCESSES = "it starts processes"
SOCKETS = "its clients and servers talk over sockets"
STORIES = "it tells stories by the hundred"
LONG = "it computes for long"

SLOW: dict[str, str] = {
    "tests/archives/": PROCESSES,
    "tests/benchmarks/": SOCKETS,
    "tests/broker/authentication/test_key_document.py": SOCKETS,
    "tests/broker/authentication/test_sasl_connection.py": SOCKETS,
    "tests/broker/authorized_requests/": SOCKETS,
    "tests/broker/controller/test_reassignment.py::test_topic_that_would_be_too_large": LONG,
    "tests/broker/kbroker/log/verify/": LONG,
    "tests/broker/kbroker/reassign/test_command.py::test_a_throttle_is_set_on_brokers": PROCESSES,
    "tests/broker/kbroker/test_command.py::test_help": PROCESSES,
    "tests/broker/kbroker/test_current_folder.py": PROCESSES,
    "tests/broker/kbroker/test_dead_brokers.py": SOCKETS,
    "tests/broker/kbroker/test_dev.py": PROCESSES,
    "tests/broker/kbroker/test_interrupts.py": PROCESSES,
    "tests/broker/kbroker/test_local_cluster.py": SOCKETS,
    "tests/broker/kbroker/test_over_brokers.py": SOCKETS,
    "tests/broker/kbroker/test_supervisor.py::test_the_directory_of_a_single": PROCESSES,
    "tests/broker/kbroker/test_topic_created_again.py": PROCESSES,
    "tests/broker/kbroker/test_topic_deletion.py::test_a_topic_that_waits": PROCESSES,
    "tests/broker/kbroker/test_users.py": SOCKETS,
    "tests/broker/kbroker/test_zookeeper_access.py": PROCESSES,
    "tests/broker/lifecycle/test_listener_changes.py": SOCKETS,
    "tests/broker/metrics/": SOCKETS,
    "tests/broker/network/test_acceptor.py": SOCKETS,
    "tests/broker/network/test_connection.py": SOCKETS,
    "tests/broker/network/test_connection_converted.py": SOCKETS,
    "tests/broker/network/test_connection_files.py": SOCKETS,
    "tests/broker/network/test_connection_limits.py": SOCKETS,
    "tests/broker/network/test_connection_seams.py": SOCKETS,
    "tests/broker/network/test_control_listener.py": SOCKETS,
    "tests/broker/network/test_deferred.py": SOCKETS,
    "tests/broker/network/test_flood.py": SOCKETS,
    "tests/broker/network/test_listener.py": SOCKETS,
    "tests/broker/network/test_no_silence.py": SOCKETS,
    "tests/broker/network/test_strangers.py": SOCKETS,
    "tests/broker/network/test_tls": SOCKETS,
    "tests/broker/network/test_untaken_responses.py": SOCKETS,
    "tests/broker/process/test_freed_memory.py::test_large_blocks": PROCESSES,
    "tests/broker/replication/test_costs_of_fetches.py": LONG,
    "tests/broker/replication/test_failing_disks.py": SOCKETS,
    "tests/broker/replication/test_partitions_on_the_move.py": SOCKETS,
    "tests/broker/replication/test_throttled_replication.py": SOCKETS,
    "tests/broker/settings/test_entity_configs.py": SOCKETS,
    "tests/broker/test_alter_configs.py": SOCKETS,
    "tests/broker/test_inter_broker_logins.py": SOCKETS,
    "tests/broker/test_join_group.py": SOCKETS,
    "tests/broker/test_offsets_topic.py": SOCKETS,
    "tests/broker/test_rolling_change.py": SOCKETS,
    "tests/broker/test_served_versions.py": SOCKETS,
    "tests/broker/test_server.py": SOCKETS,
    "tests/broker/test_start_with_a_bad_disk.py": SOCKETS,
    "tests/broker/test_tls_cluster.py": SOCKETS,
    "tests/broker/test_transactions.py": SOCKETS,
    "tests/broker/test_transactions_bad_input.py": SOCKETS,
    "tests/broker/test_user_scram_credentials.py": SOCKETS,
    "tests/building/test_blocking_stub.py": PROCESSES,
    "tests/building/test_compiled_wheel.py": PROCESSES,
    "tests/building/test_editable.py": PROCESSES,
    "tests/building/test_makefile.py": PROCESSES,
    "tests/building/test_site.py": PROCESSES,
    "tests/building/test_wheel.py": PROCESSES,
    "tests/chaos/": PROCESSES,
    "tests/clients/admin/": SOCKETS,
    "tests/clients/command_line/test_man_pages.py": PROCESSES,
    "tests/clients/command_line/test_program.py": PROCESSES,
    "tests/clients/command_line/test_progress.py": PROCESSES,
    "tests/clients/command_line/test_refused_requests.py": SOCKETS,
    "tests/clients/errors/": SOCKETS,
    "tests/clients/groups/test_group_records.py": SOCKETS,
    "tests/clients/groups/test_marker_tails.py": SOCKETS,
    "tests/clients/high_level/test_coordinator_side.py": SOCKETS,
    "tests/clients/high_level/test_group_metadata.py::test_a_committed_offset": SOCKETS,
    "tests/clients/high_level/test_group_metadata.py::test_other_errors_of_committed": SOCKETS,
    "tests/clients/high_level/test_lost_coordinators.py": PROCESSES,
    "tests/clients/kgroup/bad_input/": STORIES,
    "tests/clients/kgroup/test_command.py": PROCESSES,
    "tests/clients/kgroup/test_completion.py": PROCESSES,
    "tests/clients/kgroup/test_deletion.py": PROCESSES,
    "tests/clients/kgroup/test_doctor.py": PROCESSES,
    "tests/clients/kgroup/test_examples.py::test_an_example_is_not_refused": SOCKETS,
    "tests/clients/kgroup/test_interrupts.py": PROCESSES,
    "tests/clients/kgroup/test_library_in_docs.py": PROCESSES,
    "tests/clients/kgroup/test_marked_topic.py": SOCKETS,
    "tests/clients/kgroup/test_missing_rights.py": PROCESSES,
    "tests/clients/kgroup/test_monitoring_guide.py": PROCESSES,
    "tests/clients/kgroup/test_offsets_topic_refused.py": PROCESSES,
    "tests/clients/kgroup/test_reset.py::test_an_undo_online_that_deletes": PROCESSES,
    "tests/clients/kgroup/test_reset_of_hanging_brokers.py": PROCESSES,
    "tests/clients/kgroup/test_retention_of_leaders.py": PROCESSES,
    "tests/clients/kgroup/test_tasks_in_docs.py": PROCESSES,
    "tests/clients/kgroup/test_unreachable.py::test_at_risk_calms_nobody": SOCKETS,
    "tests/clients/producer/test_changing_cluster.py": SOCKETS,
    "tests/clients/producer/test_idempotence.py": SOCKETS,
    "tests/clients/producer/test_known_faults.py": SOCKETS,
    "tests/clients/producer/test_old_brokers.py": SOCKETS,
    "tests/clients/producer/test_old_producer.py": SOCKETS,
    "tests/clients/producer/test_producer.py": SOCKETS,
    "tests/clients/producer/test_send_many.py": SOCKETS,
    "tests/clients/producer/test_shared_close.py": SOCKETS,
    "tests/clients/producer/test_stalls.py": SOCKETS,
    "tests/clients/producer/transactions/test_transactions.py": SOCKETS,
    "tests/clients/resets/test_journal.py::test_a_command_lists_topics_once": SOCKETS,
    "tests/clients/serve/test_app.py": SOCKETS,
    "tests/clients/serve/test_hour_of_outages.py": STORIES,
    "tests/clients/serve/test_requests.py": PROCESSES,
    "tests/clients/serve/test_serve.py": PROCESSES,
    "tests/clients/serve/test_writes.py::test_write_is_a_bad_gateway": PROCESSES,
    "tests/clients/test_admin_replicas.py": SOCKETS,
    "tests/clients/test_blocking.py": SOCKETS,
    "tests/clients/test_cluster.py": SOCKETS,
    "tests/clients/test_complaints.py": SOCKETS,
    "tests/clients/test_fetching.py::test_batch_whose_codec_is_not_installed": PROCESSES,
    "tests/clients/test_first_timestamps.py": SOCKETS,
    "tests/clients/test_fork.py": PROCESSES,
    "tests/clients/test_logins.py": SOCKETS,
    "tests/clients/test_migration_simulation.py": STORIES,
    "tests/clients/test_old_brokers.py": SOCKETS,
    "tests/clients/test_own_loop.py::test_admin_and_simple_consumer": SOCKETS,
    "tests/clients/test_own_loop.py::test_producer_refuses": SOCKETS,
    "tests/clients/test_registered_brokers.py": SOCKETS,
    "tests/clients/test_simple_consumer.py": SOCKETS,
    "tests/clients/test_unclosed_producer.py": PROCESSES,
    "tests/clients/test_uvloop.py": SOCKETS,
    "tests/clients/transport/test_addresses.py::test_a_silent_address": SOCKETS,
    "tests/clients/transport/test_connection.py": SOCKETS,
    "tests/clients/watching/test_ends_of_commits.py": SOCKETS,
    "tests/clients/watching/test_group_watch.py": SOCKETS,
    "tests/clients/watching/test_history_file.py::test_commits_of_a_process": PROCESSES,
    "tests/clients/watching/test_offsets_topic.py::test_a_broker_that_does_not_respond": SOCKETS,
    "tests/clients/watching/test_rights_taken_away.py": SOCKETS,
    "tests/cluster/": PROCESSES,
    "tests/compaction/test_clean_random.py": LONG,
    "tests/compaction/test_offset_map.py": LONG,
    "tests/compaction/test_worker_pool.py": PROCESSES,
    "tests/core_log/test_bit_flips.py": LONG,
    "tests/core_log/test_directory.py::test_lock_keeps_another_process_out": PROCESSES,
    "tests/core_log/test_disk_full.py": PROCESSES,
    "tests/core_log/test_foreign_files.py::test_directory_that_a_jvm_has_locked": PROCESSES,
    "tests/core_log/test_log_producers.py": LONG,
    "tests/core_log/test_permission_denied.py": LONG,
    "tests/crash/": LONG,
    "tests/fuzz/test_fuzz.py::test_broker": PROCESSES,
    "tests/fuzz/test_growth.py": PROCESSES,
    "tests/groups/assignors/test_histories.py": LONG,
    "tests/groups/assignors/test_java.py": PROCESSES,
    "tests/groups/zookeeper/test_assignment.py": LONG,
    "tests/groups/zookeeper/test_filters.py::test_java_itself": PROCESSES,
    "tests/groups/zookeeper/test_simulation.py": STORIES,
    "tests/groups/zookeeper/test_story.py": STORIES,
    "tests/interop/": PROCESSES,
    "tests/kgroup/test_front.py": PROCESSES,
    "tests/kgroup/test_other_systems.py::test_all_that_programs": PROCESSES,
    "tests/kgroup/testing/test_running_cluster.py": PROCESSES,
    "tests/kgroup/testing/test_simulation_guide.py": PROCESSES,
    "tests/mutants/": LONG,
    "tests/protocol/test_closed_transport.py": SOCKETS,
    "tests/protocol/test_compression.py::test_missing_package_is_named": PROCESSES,
    "tests/protocol/test_record_columns.py": LONG,
    "tests/protocol/test_record_walk.py": LONG,
    "tests/protocol/tls/test_stores.py::test_pkcs12_without": PROCESSES,
    "tests/protocol/tls/test_transport.py": SOCKETS,
    "tests/simulation/test_cluster_simulation.py": STORIES,
    "tests/spark/": PROCESSES,
    "tests/transactions/test_late_requests.py": PROCESSES,
    "tests/transactions/test_story.py": STORIES,
    "tests/zk/session/": SOCKETS,
    "tests/zk/test_embedded.py": PROCESSES,
    "tests/zk/test_kazoo_link.py": SOCKETS,
}
"""The beginnings of the ids of tests that are not fast, and why."""

REAL_FIXTURES = frozenset(
    {"dev_cluster", "ensemble", "zk_chroot", "zookeeper", "zookeeper_server", "zookeepers"}
)
"""Fixtures that start a process."""

IN_MEMORY_TOO = "tests/zk/session/"
IN_MEMORY = re.compile(r"[\[-]memory[\]-]")
"""Tests that run on real servers, and once more on one in memory, which their ids show."""

_FORBIDDEN = {
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
}
"""Python's audit events of what a fast test may not do."""

_watched: set[str] | None = None


def is_fast(test_id: str, fixtures: Collection[str]) -> bool:
    """Return whether the test with this id, which takes these fixtures, is fast."""
    if not REAL_FIXTURES.isdisjoint(fixtures):
        return False
    if test_id.startswith(IN_MEMORY_TOO) and IN_MEMORY.search(test_id):
        return True
    return not any(map(test_id.startswith, SLOW))


def is_slow_as_a_whole(path: str) -> bool:
    """Return whether no test in this file or folder is fast; a folder's path ends with a slash."""
    return not path.startswith(IN_MEMORY_TOO) and any(map(path.startswith, SLOW))


def watch() -> None:
    """Watch from now on what tests do; for this process there is no way back."""
    sys.addaudithook(_note)


def begin() -> None:
    """Begin to watch a test."""
    global _watched
    _watched = set()


def complaint() -> str | None:
    """Say what the test has done that a fast one may not."""
    global _watched
    seen, _watched = _watched, None
    return f"a fast test may not do this (tests/stage/fast.py): {sorted(seen)}" if seen else None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is not None and event in _FORBIDDEN:
        _watched.add(event)
