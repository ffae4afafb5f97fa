"""The floors and wings of ARCHITECTURE.md, held against the code's own imports.

- A package imports only what lies below it (FLOORS), and so does a wing of a package (WINGS).
- No module imports itself by way of others.
- Only the listed SHELLS may touch the event loop, ZooKeeper, sockets, processes, threads, the clock
  or chance (IMPURE). A function that waits is in a shell too, or its module is in WAITING, which
  says for what: it is a script of steps over a seam that others can be put into.

Imports under `if TYPE_CHECKING:` are for the type checker alone and exempt from all.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Package -> what it may import of ours, besides itself.
FLOORS: dict[str, set[str]] = {
    "protocol": set(),
    "zk": {"protocol"},
    "core_log": {"protocol"},
    "compaction": {"core_log", "protocol"},
    "offsets": {"protocol", "zk"},
    "groups": {"offsets", "protocol", "zk"},
    "clients": {"groups", "offsets", "protocol", "zk"},
    "broker": {
        "clients.transport",
        "groups",
        "offsets",
        "compaction",
        "core_log",
        "protocol",
        "zk",
    },
    "spark_connector": {"clients", "groups.zookeeper.filters", "protocol"},
    "kgroup": {"clients", "protocol", "spark_connector"},
}

# What one folder, with those in it, may import on top of its package's row.
ALSO: dict[str, set[str]] = {
    "broker.kbroker": {
        "clients.admin",
        "clients.cluster_view",
        "clients.command_line.command_group",
        "clients.errors",
        "clients.command_line.finite_range",
        "clients.command_line.interrupts",
        "clients.command_line.kafka_spelling",
        "clients.command_line.missing_rights",
        "clients.named_object",
        "clients.command_line.output",
        "clients.command_line.point_in_time",
        "clients.command_line.printing",
        "clients.command_line.program",
        "clients.command_line.progress",
        "clients.command_line.sessions",
    },
    "kgroup.testing.simulation": {"broker", "compaction", "core_log", "offsets", "zk"},
}

# Package -> its wings from the ground up; one imports of its package what stands before it. Modules
# beside the wings are on no floor, but may not be part of a circle either.
WINGS: dict[str, tuple[str, ...]] = {
    "core_log": ("segments", "appending", "producers", "recovery"),
    "groups": ("assignors", "runtime", "coordinator", "transactions", "consumer", "zookeeper"),
    "clients": (
        "transport",
        "admin",
        "producer",
        "command_line",
        "groups",
        "resets",
        "watching",
        "high_level",
        "kgroup",
        "serve",
    ),
    "broker": (
        "process",
        "network",
        "authorization",
        "controller",
        "settings",
        "quotas",
        "authentication",
        "replication",
        "cluster",
        "coordinators",
        "metrics",
        "handlers",
        "lifecycle",
        "kbroker",
    ),
}

# Two wings of a package that know nothing of each other.
STRANGERS = {
    ("groups.coordinator", "groups.zookeeper"),
    ("groups.coordinator", "groups.transactions"),
    ("groups.transactions", "groups.zookeeper"),
    ("groups.transactions", "groups.consumer"),
    ("groups.runtime", "groups.zookeeper"),
    ("groups.consumer", "groups.zookeeper"),
    ("groups.coordinator", "groups.consumer"),
    ("groups.runtime", "groups.consumer"),
}

# Programs that use the packages; they stand on no floor.
NOT_SHIPPED = {"benchmarks", "building", "examples", "tests"}

IMPURE = {
    "asyncio",
    "kazoo",
    "multiprocessing",
    "os",
    "random",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
}

# Modules (or whole folders) that may import IMPURE ones: they move bytes and time, no more.
SHELLS = {
    "broker.authentication.key_document",
    "broker.authentication.token_validator",
    "broker.authorization.acl_authorizer",
    "broker.authorization.acl_store",
    "protocol.child_python",
    "protocol.port_holder",
    "protocol.shielded",
    "protocol.suspension",
    "protocol.tls.context",
    "protocol.tls.transport",
    "broker.network.acceptor",
    "broker.network.addresses",
    "broker.network.connection",
    "broker.network.response_parts",
    "broker.replication.control_work",
    "broker.lifecycle.controlled_shutdown",
    "broker.controller.channel",
    "broker.coordinators.earlier_topics",
    "broker.coordinators.group_event_writer",
    "broker.coordinators.marker_sender",
    "broker.controller.cluster_reader",
    "broker.controller.cluster_writer",
    "broker.controller.controller",
    "broker.controller.election",
    "broker.network.deferred",
    "broker.process.freed_memory",
    "broker.process.loop_turns",
    "broker.network.large_requests",
    "broker.network.letting_go",
    "broker.replication.directory_moves",
    "core_log.log_work",
    "broker.lifecycle.assembly",
    "broker.lifecycle.housekeeping",
    "broker.lifecycle.listener_changes",
    "broker.metrics.assembly",
    "broker.metrics.loop_load",
    "broker.metrics.metrics_server",
    "broker.replication.assembly",
    "broker.replication.isr_writer",
    "broker.replication.topic_identities",
    "broker.replication.flusher",
    "broker.kbroker",
    "broker.network.listener",
    "broker.process.process_limits",
    "broker.process.periodic",
    "broker.cluster.producer_ids",
    "broker.network.own_requests",
    "broker.network.purgatory",
    "broker.cluster.registration",
    "broker.replication.replica_fetchers",
    "broker.server",
    "broker.process.tasks",
    "broker.cluster.topic_creation",
    "broker.process.watchdog",
    "broker.process.zk_retry",
    "broker.process.change_notifications",
    "broker.settings.config_resources",
    "clients.admin.admin",
    "clients.patience",
    "clients.admin.calls",
    "clients.admin.group_calls",
    "clients.admin.transaction_calls",
    "clients.blocking",
    "clients.loop_thread",
    "clients.shared_close",
    "kgroup.testing",
    "clients.cluster",
    "clients.doubts",
    "clients.known_cluster",
    "clients.complaints",
    "clients.kgroup.completion",
    "clients.transport.connection",
    "clients.transport.addresses",
    "clients.transport.connections",
    "clients.transport.login",
    "clients.first_timestamps",
    "clients.resets.group_copy",
    "clients.groups.group_reader",
    "clients.groups.group_records",
    "clients.groups.zookeeper_groups",
    "clients.watching.asked_offsets",
    "clients.watching.group_watch",
    "clients.watching.history",
    "clients.high_level.connector",
    "clients.high_level.coordinator_side",
    "clients.high_level.delivery",
    "clients.high_level.fetchers",
    "clients.high_level.group_coordinator",
    "clients.high_level.group_events",
    "clients.high_level.heartbeats",
    "clients.high_level.leader_finder",
    "clients.high_level.other_kind",
    "clients.high_level.streams",
    "clients.high_level.zookeeper_side",
    "clients.resets.journal_file",
    "clients.resets.journalled_offsets",
    "clients.kgroup",
    "clients.migrator",
    "clients.command_line.named_clusters",
    "clients.groups.offset_rows",
    "clients.groups.offset_times",
    "clients.watching.offsets_topic",
    "clients.command_line.output",
    "clients.own_loop",
    "clients.own_process",
    "clients.paced",
    "clients.command_line.interrupts",
    "clients.command_line.progress",
    "clients.watching.recorder",
    "clients.watching.zookeeper_watch",
    "clients.serve.app",
    "clients.serve.command",
    "clients.serve.connections",
    "clients.serve.monitor",
    "clients.serve.writes",
    "clients.producer.deliveries",
    "clients.producer.event_handler",
    "clients.producer.handover",
    "clients.producer.old_producer",
    "clients.producer.producer",
    "clients.producer.send_queue",
    "clients.producer.sender",
    "clients.producer.sent_record",
    "clients.producer.transactions.transactions",
    "clients.resets.reset",
    "clients.simple_consumer",
    "compaction.cleaner",
    "compaction.worker",
    "compaction.worker_pool",
    "core_log.directory",
    "core_log.log_manager",
    "core_log.recovery.recovery_pool",
    "core_log.loop_guard",
    "core_log.open_files",
    "core_log.segments.segment_file",
    "groups.consumer.member",
    "groups.event_timers",
    "groups.runtime.runtime",
    "groups.zookeeper.member",
    "groups.zookeeper.tree",
    "offsets.governed_store",
    "offsets.zookeeper_store",
    "spark_connector",
    "zk.embedded",
    "zk.kazoo_link",
    "zk.acl_change",
    "zk.session",
}


# Modules that wait and are no shells -> what for.
WAITING: dict[str, str] = {
    "broker.cluster.ghost_partitions": "a ZooKeeper session",
    "broker.replication.set_aside_logs": "a ZooKeeper session, and threads for the disk",
    "broker.replication.stray_logs": "a ZooKeeper session",
    "broker.authentication.logins": "keys of tokens, through their validator",
    "broker.authentication.scram_users": "ZooKeeper, through a session",
    "zk.api": "the seam of a session",
    "zk.memory": "the session's twin in memory",
    "core_log.log": "a flush that others run",
    "compaction.cleaning": "the work of a cleaner's thread or process",
    "offsets.store": "the seam of a store",
    "groups.coordinator.coordinator": "the runtime",
    "groups.transactions.coordinator": "the runtime",
    "groups.zookeeper.deletion": "ZooKeeper, through a session",
    "broker.coordinators.broker_connection": "the seam of a connection",
    "broker.coordinators.transaction_verifier": "the seam of a connection",
    "broker.coordinators.zookeeper_members": "ZooKeeper's session",
    "clients.high_level.group_side": "the seam of a group's side",
    "clients.high_level.seeking": "a leader, through the cluster's connections",
    "clients.command_line.sessions": "sessions that are opened and closed",
    "clients.groups.group_lag": "the admin client",
    "clients.groups.marker_tails": "brokers, through the cluster's connections",
    "clients.groups.unowned_partitions": "a broker, through the cluster's connections",
    "clients.command_line.missing_rights": "brokers, through the cluster's connections",
    "clients.watching.simulation_scene": "the admin client, and the reader of groups",
    "clients.fetch_requests": "a broker, through a connection",
    "clients.fetching": "a broker, through a connection",
    "clients.registered_brokers": "ZooKeeper, through a session",
    "clients.followed_partition": "brokers, through the cluster's connections",
    "clients.admin.hanging_transactions": "the admin client",
    "clients.admin.offset_store": "the admin client",
    "clients.resets.journal": "a topic, or a file",
    "clients.resets.journal_topic": "brokers, through a producer and a consumer",
    "clients.resets.offset_writing": "the stores of offsets",
    "clients.resets.online_commit": "the admin client",
    "clients.resets.undo": "the journal, and the stores of offsets",
    "clients.serve.known_hosts": "the application that it passes requests to",
    "broker.coordinators.zookeeper_offsets": "ZooKeeper, through a store",
    "broker.handlers.alter_client_quotas": "ZooKeeper, through the settings",
    "broker.handlers.alter_partition_reassignments": "the controller",
    "broker.handlers.alter_user_scram_credentials": "ZooKeeper, through the settings",
    "broker.handlers.config_authorization": "the handler it wraps",
    "broker.handlers.controlled_shutdown": "the controller",
    "broker.handlers.create_partitions": "ZooKeeper, through the cluster",
    "broker.handlers.create_acls": "ZooKeeper, through the authorizer",
    "broker.handlers.delete_acls": "ZooKeeper, through the authorizer",
    "broker.handlers.describe_user_scram_credentials": "ZooKeeper, through a session",
    "broker.handlers.elect_leaders": "the controller",
    "broker.handlers.describe_client_quotas": "ZooKeeper, through a session",
    "broker.handlers.list_offsets": "a thread that reads",
    "broker.handlers.list_partition_reassignments": "the controller",
    "broker.settings.broker_configs": "ZooKeeper, through a session",
    "broker.settings.config_changes": "ZooKeeper, through a session",
    "broker.quotas.assembly": "the quotas in ZooKeeper",
    "broker.quotas.stored_quotas": "ZooKeeper, through a session",
    "broker.settings.entity_configs": "ZooKeeper, through a session",
    "broker.settings.tls_contexts": "threads that read stores",
    "broker.settings.topic_configs": "ZooKeeper, through a session",
    "broker.cluster.identity": "ZooKeeper, through a session",
    "broker.cluster.log_failures": "ZooKeeper, through a session",
    "broker.coordinators.deleted_topics": "ZooKeeper, through a session",
    "broker.cluster.partition_creation": "ZooKeeper, through a session",
    "broker.cluster.peers": "a connection that is opened",
    "broker.lifecycle.config_effects": "settings that are read",
}


def test_every_import_goes_down_and_only_shells_are_impure() -> None:
    files = sorted(file for package in FLOORS for file in (ROOT / package).rglob("*.py"))
    assert files
    faults = [
        fault
        for file in files
        for fault in faults_of(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))
    ]
    assert not faults, "\n" + "\n".join(faults)


def test_every_wing_imports_only_wings_below_it() -> None:
    faults = [
        fault
        for package in WINGS
        for file in sorted((ROOT / package).rglob("*.py"))
        for fault in wing_faults_of(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))
    ]
    assert not faults, "\n" + "\n".join(faults)


def test_every_folder_of_a_package_is_a_wing() -> None:
    for package, wings in WINGS.items():
        folders = {file.parent.name for file in (ROOT / package).glob("*/__init__.py")}
        assert folders == set(wings), package


def test_no_module_imports_itself_by_way_of_others() -> None:
    files = {
        module_of(file.relative_to(ROOT).as_posix()): file
        for package in FLOORS
        for file in (ROOT / package).rglob("*.py")
    }
    imports = {}
    for module, file in files.items():
        folder = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
        names = [name for _, name in imports_of(ast.parse(file.read_text("utf-8")), folder)]
        known = {name if name in files else name.rpartition(".")[0] for name in names}
        imports[module] = (known & files.keys()) - {module}
    assert find_circle(imports) is None


def test_a_function_waits_in_a_shell_or_where_it_is_said_for_what() -> None:
    waiting = {
        module_of(file.relative_to(ROOT).as_posix())
        for package in FLOORS
        for file in (ROOT / package).rglob("*.py")
        if any(
            isinstance(node, ast.AsyncFunctionDef)
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
        )
    }
    assert {module for module in waiting if not within(module, SHELLS)} == WAITING.keys()


def test_a_wing_that_imports_one_above_it_is_named_with_its_line() -> None:
    source = "from broker.process import tasks\nfrom broker.lifecycle.housekeeping import x\n"
    assert wing_faults_of("broker/network/listener.py", source) == [
        "broker/network/listener.py:2: network may not import broker.lifecycle.housekeeping.x"
    ]


def test_a_wing_may_not_import_the_modules_that_join_the_wings() -> None:
    assert wing_faults_of("broker/network/listener.py", "import broker.server\n") == [
        "broker/network/listener.py:1: network may not import broker.server"
    ]


def test_the_kinds_of_groups_are_strangers() -> None:
    source = "from groups.coordinator.coordinator import GroupCoordinator\n"
    assert wing_faults_of("groups/zookeeper/member.py", source) == [
        "groups/zookeeper/member.py:1: zookeeper may not import "
        "groups.coordinator.coordinator.GroupCoordinator"
    ]


def test_a_circle_is_found_with_all_its_modules() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}) == ["b", "c", "d"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_every_package_of_the_tree_has_a_floor() -> None:
    packages = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert packages - NOT_SHIPPED <= set(FLOORS)


def test_an_import_that_goes_up_is_named_with_its_line() -> None:
    source = "import struct\n\n\ndef late() -> None:\n    from broker.server import Broker\n"
    assert faults_of("clients/groups/lag.py", source) == [
        "clients/groups/lag.py:5: clients may not import broker.server.Broker"
    ]


def test_a_submodule_imported_from_its_package_is_seen() -> None:
    source = "from clients import transport, cluster\n"
    assert faults_of("broker/replication/partition.py", source) == [
        "broker/replication/partition.py:1: broker may not import clients.cluster"
    ]


def test_a_relative_import_of_a_sibling_package_is_seen() -> None:
    assert faults_of("broker/handlers/fetch.py", "from ...clients import cluster\n") == [
        "broker/handlers/fetch.py:1: broker may not import clients.cluster"
    ]


def test_the_broker_command_may_use_the_admin_client_and_the_broker_may_not() -> None:
    source = "from clients.admin import Admin\n"
    assert faults_of("broker/kbroker/topics.py", source) == []
    assert faults_of("broker/server.py", source) == [
        "broker/server.py:1: broker may not import clients.admin.Admin"
    ]


def test_an_impure_import_outside_the_shells_is_named_with_its_line() -> None:
    source = "import os.path\nfrom time import monotonic\n"
    assert faults_of("core_log/log.py", source) == [
        "core_log/log.py:1: os.path is for shells, and core_log.log is none",
        "core_log/log.py:2: time.monotonic is for shells, and core_log.log is none",
    ]


def test_every_module_of_a_shell_folder_may_be_impure() -> None:
    assert faults_of("clients/kgroup/consume.py", "import asyncio\n") == []


def test_an_import_for_type_hints_alone_is_exempt_and_its_else_branch_is_not() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import asyncio\nelse:\n    import socket\n"
    )
    assert faults_of("core_log/log.py", source) == [
        "core_log/log.py:5: socket is for shells, and core_log.log is none"
    ]


def faults_of(path: str, source: str) -> list[str]:
    """One line for each import in the file at `path` (from the root) that breaks a rule."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
        folder = parts
    else:
        folder = parts[:-1]
    module, package = ".".join(parts), parts[0]
    allowed = FLOORS[package] | {package}
    for upper, more in ALSO.items():
        if within(module, {upper}):
            allowed |= more
    faults = []
    for line, imported in imports_of(ast.parse(source), folder):
        root = imported.split(".")[0]
        if root in FLOORS and not within(imported, allowed):
            faults.append(f"{path}:{line}: {package} may not import {imported}")
        if root in IMPURE and not within(module, SHELLS):
            faults.append(f"{path}:{line}: {imported} is for shells, and {module} is none")
    return faults


def wing_faults_of(path: str, source: str) -> list[str]:
    """Return a line for each import by which the file's wing reaches another one above it."""
    package, wing, *_ = path.removesuffix(".py").split("/")
    wings = WINGS[package]
    if wing not in wings:
        return []
    below = wings[: wings.index(wing) + 1]
    faults = []

    for line, imported in imports_of(ast.parse(source), path.split("/")[:-1]):
        root, _, rest = imported.partition(".")
        target = rest.partition(".")[0]
        if root != package:
            continue
        is_above = target in wings and target not in below
        is_stranger = {(f"{root}.{wing}", f"{root}.{target}")} | {
            (f"{root}.{target}", f"{root}.{wing}")
        }
        joins_wings = package == "broker" and target in {"server", "handler_table"}
        if is_above or is_stranger & STRANGERS or (joins_wings and wing != "kbroker"):
            faults.append(f"{path}:{line}: {wing} may not import {imported}")

    return faults


def find_circle(imports: dict[str, set[str]]) -> list[str] | None:
    """Return the modules of a circle of imports, in order; None if there is none."""
    finished: set[str] = set()

    def visit(module: str, way: list[str]) -> list[str] | None:
        if module in way:
            return way[way.index(module) :]
        if module in finished:
            return None
        for imported in sorted(imports.get(module, ())):
            circle = visit(imported, [*way, module])
            if circle is not None:
                return circle
        finished.add(module)
        return None

    for module in sorted(imports):
        circle = visit(module, [])
        if circle is not None:
            return circle
    return None


def module_of(path: str) -> str:
    """Return the dotted name of the module at `path`."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def within(module: str, prefixes: set[str]) -> bool:
    """Whether `module` is one of `prefixes` or lies inside one."""
    return any(f"{module}.".startswith(f"{prefix}.") for prefix in prefixes)


def imports_of(tree: ast.AST, folder: list[str]) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import that runs; `folder` resolves the relative ones."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for other in node.orelse:
                yield from imports_of(ast.Module([other], []), folder)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = folder[: len(folder) - node.level + 1] if node.level else []
            source = [*parents, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*source, alias.name])) for alias in node.names)
        else:
            yield from imports_of(node, folder)


def is_type_checking(test: ast.expr) -> bool:
    """Whether an `if` asks for `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
