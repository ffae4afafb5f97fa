"""The settings in ZooKeeper for this broker and for all brokers, and the effective ones."""

from __future__ import annotations

import pytest

from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig, load_broker_config
from protocol.settings import SettingError
from tests.broker.spawning import Spawned
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import DEFAULT_ENTITY, EntityConfig

THREADS, BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
ROOM_FOR_ONE = str(2**20 + 2**19)
"""A dedupe buffer for one thread of the cleaner, and not for two."""


async def read_configs(
    own: dict[str, str] | bytes, cluster: dict[str, str], **given: str
) -> tuple[BrokerConfigs, MemorySession, list[BrokerConfig]]:
    """Return broker 5's configs after it has read them, its session, and the changes it was
    notified of."""
    session = MemoryZooKeeper().session()
    await session.start()
    for entity, config in ((DEFAULT_ENTITY, cluster), ("5", own)):
        data = config if isinstance(config, bytes) else EntityConfig(config).encode()
        await session.create(EntityConfig.path("brokers", entity), data, make_parents=True)
    properties = {name.replace("_", "."): value for name, value in given.items()}
    static, _ = load_broker_config({"zookeeper.connect": "zk:1", "broker.id": "5"} | properties)
    changes: list[BrokerConfig] = []
    configs = BrokerConfigs(session, static, Spawned(), changes.append)
    await configs.read()
    return configs, session, changes


async def test_the_brokers_own_stand_over_those_of_all_and_these_over_the_file() -> None:
    configs, _, changes = await read_configs(
        {"log.retention.ms": "1"},
        {"log.retention.ms": "2", "log.segment.bytes": "22"},
        log_segment_bytes="33",
        log_roll_ms="44",
    )
    log = configs.now.log
    assert (log.retention_ms, log.segment_bytes, log.segment_ms) == (1, 22, 44)
    assert changes == [configs.now]


async def test_what_is_not_understood_is_named_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configs, _, _ = await read_configs(
        {"log.retention.ms": "soon", "log.segment.bytes": "22", "ssl.key.password": "xyzzy"}, {}
    )
    assert configs.now.log.segment_bytes == 22
    assert configs.now.log.retention_ms == configs.static.log.retention_ms
    assert dict(configs.own) == {"log.segment.bytes": "22"}
    assert "log.retention.ms" in caplog.text
    assert "ssl.key.password" in caplog.text
    assert "xyzzy" not in caplog.text


async def test_bad_setting_by_which_records_are_deleted_has_all_of_them_kept() -> None:
    configs, session, _ = await read_configs(
        {"log.retention.ms": "5"}, {"log.cleanup.policy": "never"}
    )
    assert (configs.now.log.retention_ms, configs.now.log.deletes) == (5, False)

    data = EntityConfig({"log.cleanup.policy": "delete"}).encode()
    await session.set(EntityConfig.path("brokers", DEFAULT_ENTITY), data)
    await configs.read()
    assert configs.now.log.deletes


async def test_a_node_that_is_no_json_leaves_what_was_known_and_keeps_all_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    configs, session, _ = await read_configs({"log.roll.ms": "44"}, {"log.segment.bytes": "22"})
    await session.set(EntityConfig.path("brokers", "5"), b"{")
    await configs.read()
    log = configs.now.log
    assert (log.segment_bytes, log.segment_ms, log.deletes) == (22, 44, False)
    assert "/config/brokers/5 cannot be understood" in caplog.text


async def test_earlier_value_that_is_impossible_beside_the_others_does_not_stand() -> None:
    configs, session, changes = await read_configs({THREADS: "2"}, {})
    data = EntityConfig({BUFFER: ROOM_FOR_ONE, THREADS: "many"}).encode()
    await session.set(EntityConfig.path("brokers", "5"), data)

    await configs.read()

    cleaner = configs.now.cleaner
    assert (cleaner.threads, cleaner.dedupe_buffer_size) == (1, int(ROOM_FOR_ONE))
    assert changes[-1] == configs.now


async def test_earlier_settings_stand_only_as_far_as_the_new_ones_of_all_brokers_allow() -> None:
    configs, session, _ = await read_configs({BUFFER: ROOM_FOR_ONE, "log.roll.ms": "44"}, {})
    await session.set(EntityConfig.path("brokers", "5"), b"{")
    data = EntityConfig({THREADS: "2"}).encode()
    await session.set(EntityConfig.path("brokers", DEFAULT_ENTITY), data)

    await configs.read()

    now = configs.now
    assert (now.cleaner.threads, now.log.segment_ms, now.log.deletes) == (2, 44, False)
    assert now.cleaner.dedupe_buffer_size == configs.static.cleaner.dedupe_buffer_size


@pytest.mark.parametrize("names", [(THREADS, BUFFER), (BUFFER, THREADS)])
async def test_settings_that_are_possible_only_together_stand_in_any_order(
    names: tuple[str, str],
) -> None:
    values = {THREADS: "200", BUFFER: str(2**30)}
    configs, _, _ = await read_configs({name: values[name] for name in names}, {})
    cleaner = configs.now.cleaner
    assert (cleaner.threads, cleaner.dedupe_buffer_size) == (200, 2**30)


@pytest.mark.parametrize(
    ("entity", "settings"),
    [
        ("5", {BUFFER: ROOM_FOR_ONE}),  # beside the threads of all brokers
        (DEFAULT_ENTITY, {BUFFER: ROOM_FOR_ONE, THREADS: "2"}),
        (DEFAULT_ENTITY, {THREADS: "6"}),  # beside the broker's own buffer
        (DEFAULT_ENTITY, {THREADS: "200"}),  # on a broker without a buffer of its own
    ],
)
async def test_settings_contradict_those_they_are_combined_with(
    entity: str, settings: dict[str, str]
) -> None:
    configs, _, _ = await read_configs({BUFFER: str(5 * 2**20)}, {THREADS: "2"})
    with pytest.raises(SettingError, match="1 MiB"):
        configs.refuse_contradiction(entity, settings)
    configs.refuse_contradiction(entity, {**settings, BUFFER: str(2**30), THREADS: "2"})


@pytest.mark.parametrize(("entity", "is_read"), [("5", True), (DEFAULT_ENTITY, True), ("6", False)])
async def test_a_change_is_read_if_it_is_of_this_broker_or_of_all(
    entity: str, is_read: bool
) -> None:
    configs, session, _ = await read_configs({}, {})
    data = EntityConfig({"log.segment.bytes": "22"}).encode()
    await session.set(EntityConfig.path("brokers", "5"), data)
    configs.broker_changed(entity)
    assert isinstance(configs.spawn, Spawned)
    await configs.spawn.ended()
    assert (configs.now.log.segment_bytes == 22) is is_read
