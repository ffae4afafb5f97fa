import pickle

import pytest

from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from spark_connector.options import SourceOptions, read_options, specific_offsets

NEEDED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "flights, trains"}


def read(streaming: bool = True, **more: str) -> SourceOptions:
    return read_options(
        {**NEEDED, **{k.replace("_", "."): v for k, v in more.items()}}, streaming=streaming
    )


def refusal(given: dict[str, str], streaming: bool = True) -> str:
    with pytest.raises(SettingError) as refused:
        read_options(given, streaming=streaming)
    return str(refused.value)


def test_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest() -> None:
    assert read(streaming=True).starting_offsets == "latest"
    assert read(streaming=False).starting_offsets == "earliest"


def test_names_are_the_same_in_any_case() -> None:
    options = read(STARTINGOFFSETS="Earliest", maxoffsetspertrigger="7", includeheaders="TRUE")
    assert options.subscribe == ("flights", "trains")
    assert options.starting_offsets == "earliest"
    assert options.max_offsets_per_trigger == 7
    assert options.include_headers


def test_what_kafka_begins_is_a_setting_of_the_client() -> None:
    options = read(kafka_request_timeout_ms="123", kafka_isolation_level="read_committed")
    assert options.client.bootstrap_servers == ("b:9092",)
    assert options.client.isolation == 1
    assert options.client.cluster_settings["request.timeout.ms"] == 123


def test_the_committers_name_of_the_group_is_understood() -> None:
    assert read(kafka_consumer_commit_groupid="etl").committed_group == "etl"


def test_no_group_is_committed_to_when_the_mode_is_off() -> None:
    assert read(commit_group_id="etl", commit_mode="off").committed_group is None


def test_options_travel_to_workers() -> None:
    options = read(commit_group_id="etl")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("startingofsets", "did you mean startingOffsets"),
        ("kafka.bootstrap.server", "did you mean bootstrap.servers"),
        ("subscribePattern", "subscribe"),
        ("kafka.group.id", "commit.group.id"),
    ],
)
def test_an_unknown_option_is_named_with_what_may_have_been_meant(option: str, text: str) -> None:
    refused = refusal({**NEEDED, option: "x"})
    assert refused.startswith(f"{option}: ")
    assert text in refused


@pytest.mark.parametrize(
    ("option", "value", "streaming"),
    [
        ("startingOffsets", "smallest", True),
        ("startingOffsets", "group", True),
        ("startingOffsets", "latest", False),
        ("startingOffsets", '{"flights": {"0": -1}}', False),
        ("startingOffsets", '{"flights": {"0": -3}}', True),
        ("startingOffsets", '{"ships": {"0": 3}}', True),
        ("startingOffsets", '{"flights": [3]}', True),
        ("startingOffsets", '{"flights": ', True),
        ("endingOffsets", '{"flights": {"0": 3}}', True),
        ("endingOffsets", "earliest", False),
        ("endingOffsets", '{"flights": {"0": -2}}', False),
        ("maxOffsetsPerTrigger", "0", True),
        ("failOnDataLoss", "perhaps", True),
        ("commit.mode", "sometimes", True),
        ("commit.metadata", "initial", True),
        ("commit.metadata", "x" * 4097, True),
        ("subscribe", " , ", True),
        ("kafka.isolation.level", "serializable", True),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_options_name(
    option: str, value: str, streaming: bool
) -> None:
    assert f"{option}: " in refusal({**NEEDED, option: value}, streaming)


@pytest.mark.parametrize("missing", NEEDED)
def test_what_is_required_is_named(missing: str) -> None:
    given = {name: value for name, value in NEEDED.items() if name != missing}
    assert refusal(given).startswith(f"{missing}: is required")


def test_offsets_in_json_are_read_with_their_two_special_numbers() -> None:
    offsets = specific_offsets("startingOffsets", '{"t": {"0": 23, "1": -2, "2": -1}}', ("t",))
    assert offsets == {TopicPartition("t", n): o for n, o in enumerate((23, -2, -1))}
