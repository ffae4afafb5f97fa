import json
import pickle

import pytest

from clients.config import ClusterConfig
from clients.security import login_of
from protocol.settings import SettingError, load
from protocol.topic_partition import TopicPartition
from spark_connector.options import SourceOptions, read_options, warn_of_groups
from spark_connector.positions import Position
from spark_connector.sink.options import read_sink_options

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


def test_columns_that_are_named_make_the_row() -> None:
    assert read().row_columns[-1] == "timestampType"
    assert read(includeHeaders="true").row_columns[-1] == "headers"
    assert set(read(columns="offset, value").row_columns) == {"value", "offset"}


def test_a_column_that_does_not_exist_is_refused_with_those_that_do() -> None:
    text = refusal({**NEEDED, "columns": "value,offsets"})
    assert "configuration columns" in text
    assert "key, value, topic, partition, offset" in text


def test_what_kafka_begins_is_a_setting_of_the_client() -> None:
    options = read(kafka_request_timeout_ms="123", kafka_isolation_level="read_committed")
    assert options.client.bootstrap_servers == ("b:9092",)
    assert options.client.isolation == 1
    assert options.client.cluster_settings["request.timeout.ms"] == 123


@pytest.mark.fault("broker-8")
def test_a_protocol_before_a_host_is_taken() -> None:
    servers = {"kafka.bootstrap.servers": "PLAINTEXT://b:9092"}
    read_options({**NEEDED, **servers}, streaming=True)
    read_sink_options({**servers, "topic": "t"})


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
        ("startingOffsets", '{"flights": {"0": 9223372036854775808}}', True),
        ("startingOffsets", "group-or-nothing", True),
        ("startingTimestamp", "-1", True),
        ("startingTimestamp", "yesterday", True),
        ("startingOffsetsByTimestamp", '{"flights": {"0": -1}}', True),
        ("startingOffsetsByTimestamp", '{"ships": {"0": 1}}', True),
        ("startingOffsetsByTimestampStrategy", "earliest", True),
        ("endingTimestamp", "5", True),
        ("endingOffsetsByTimestamp", '{"flights": {"0": 5}}', True),
        ("onGroupOutOfRange", "ignore", True),
        ("minOffsetsPerTrigger", "-5", True),
        ("maxTriggerDelay", "soon", True),
        ("maxTriggerDelay", "-1m", True),
        ("minPartitions", "0", True),
        ("minPartitions", "99999999999", True),
        ("maxRecordsPerPartition", "0", True),
        ("joinedTaskOffsets", "-1", True),
        ("path", "flights", True),
        ("provider", "kgroup", False),
        ("commit.on", "batch-end", False),
        ("kafka.auto.offset.reset", "latest", True),
        ("kafka.key.deserializer", "x", True),
        ("kafka.security.protocol", "SASL", True),
        ("kafka.ssl.truststore.location", "/x", True),
        ("kafka.sasl.mechanism", "PLAIN", True),
        ("commit.mode", "sometimes", True),
        ("commit.metadata", "initial", True),
        ("commit.metadata", "x" * 4097, True),
        ("subscribe", " , ", True),
        ("kafka.isolation.level", "serializable", True),
        ("kafka.bootstrap.servers", " , ", True),
        ("kafka.bootstrap.servers", "b", True),
        ("kafka.bootstrap.servers", "b:99999", False),
        ("maxOffsetsPerTrigger", "1e6", True),
        ("maxOffsetsPerTrigger", "1" + "0" * 30, True),
        ("kafka.request.timeout.ms", "-1", True),
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


def chosen(**more: str) -> SourceOptions:
    return read_options({"kafka.bootstrap.servers": "b:9092", **more}, streaming=True)


def test_topics_partitions_or_a_pattern_say_what_is_read() -> None:
    assert chosen(subscribe="a,b").subscription.topics == ("a", "b")
    assert chosen(subscribePattern="fl.*").subscription.regex == "fl.*"
    assigned = chosen(assign='{"t": [1, 0]}').subscription.partitions
    assert assigned == {TopicPartition("t", 0), TopicPartition("t", 1)}


def test_two_ways_to_say_what_is_read_are_refused() -> None:
    refused = refusal({**NEEDED, "assign": '{"t": [0]}'})
    assert refused == "assign: is given with subscribe; a query has one of them"


@pytest.mark.parametrize(
    "text",
    ["t", "[]", "{}", '{"t": 0}', '{"t": []}', '{"t": [-1]}', '{"t": [true]}', '{"t": ["0"]}'],
)
def test_partitions_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="assign: "):
        chosen(assign=text)


@pytest.mark.parametrize(
    "construct", [r"\p{Alpha}", r"\Qa.b\E", "[a-z&&[^b]]", r"\h", r"\R", "(?<n>a)"]
)
def test_a_construct_of_javas_patterns_that_python_reads_otherwise_is_named(construct: str) -> None:
    with pytest.raises(SettingError) as refused:
        chosen(subscribePattern=f"fl{construct}")
    assert str(refused.value).startswith("subscribePattern: ")
    assert "what begins with" in str(refused.value)


def test_a_pattern_may_repeat_a_range_of_times_and_is_found_anywhere_as_in_sparks_source() -> None:
    subscription = chosen(subscribePattern="l{2,3}y").subscription
    assert subscription.matching(["ly", "xlly", "lllyx"]) == ["lllyx", "xlly"]


def test_a_timestamp_outranks_timestamps_by_partition_and_these_outrank_offsets() -> None:
    words = {"subscribe": "t", "startingOffsets": "earliest"}
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 7}}'}
    assert chosen(**words).start == Position("startingOffsets", word="earliest")
    assert chosen(**words, **times).start.times == {TopicPartition("t", 0): 7}
    assert chosen(**words, **times, startingTimestamp="9").start.time_ms == 9


def test_offsets_in_json_are_read_with_their_two_special_numbers() -> None:
    start = chosen(subscribe="t", startingOffsets='{"t": {"0": 23, "1": -2, "2": -1}}').start
    assert start.offsets == {TopicPartition("t", n): o for n, o in enumerate((23, -2, -1))}


def test_a_least_above_the_most_is_refused() -> None:
    given = {**NEEDED, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}
    assert (
        refusal(given) == "minOffsetsPerTrigger: is 9, more than maxOffsetsPerTrigger, which is 8"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("1500", 1.5),
        ("30s", 30),
        ("2min", 120),
        ("1h", 3600),
        ("1D", 86400),
        ("5us", 0),
    ],
)
def test_a_delay_is_read_as_spark_reads_it(text: str, seconds: float) -> None:
    assert read(maxTriggerDelay=text).max_trigger_delay_s == seconds


def test_settings_of_kafkas_consumer_that_mean_nothing_here_are_accepted() -> None:
    options = read_options(
        {
            **NEEDED,
            "kafka.session.timeout.ms": "45000",
            "kafka.max.poll.records": "500",
            "kafka.security.protocol": "plaintext",
            "kafka.ssl.protocol": "TLSv1.3",
            "groupIdPrefix": "etl",
        },
        streaming=True,
    )
    assert options.client.security_protocol == "plaintext"


def test_settings_of_tls_are_those_of_all_clients() -> None:
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/ca.pem"}
    client = read_options({**NEEDED, **given}, streaming=True).client
    assert client.ssl_truststore_location == "/ca.pem"
    assert client.cluster_settings["ssl.truststore.location"] == "/ca.pem"
    assert client.cluster_settings["security.protocol"] == "SSL"


LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="alice" password="sesame";'
    ),
}


def test_a_login_goes_to_every_client_and_is_not_shown() -> None:
    options = read_options({**NEEDED, **LOGIN}, streaming=True)
    again = pickle.loads(pickle.dumps(options))
    sink = read_sink_options(
        {"kafka.bootstrap.servers": "b:1", "topic": "t"}
        | {name.lower(): text for name, text in LOGIN.items()}
    )
    for config in (options.client, again.client, sink.producer_config):
        login = login_of(config)
        assert login is not None
        assert login.mechanism == "SCRAM-SHA-512"
    for settings in (options.client.cluster_settings, sink.cluster_settings):
        assert login_of(load(ClusterConfig, settings)[0]) is not None
    assert "sesame" not in repr(options) + repr(sink)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("kafka.sasl.mechanism", "GSSAPI", "Kerberos is not served"),
        ("kafka.sasl.jaas.config", "x", "not terminated"),
        ("kafka.sasl.kerberos.service.name", "kafka", "is not a setting known here"),
    ],
)
def test_a_login_that_cannot_be_is_refused_before_anything_is_read(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(SettingError, match=reason) as refused:
        read_options({**NEEDED, **LOGIN, name: text}, streaming=True)
    assert refused.value.name == name


@pytest.mark.parametrize(("consumers", "warnings"), [("etl", 0), ("other", 1)])
def test_a_group_of_consumers_that_is_not_the_one_committed_to_is_warned_of(
    consumers: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    given = {**NEEDED, "kafka.group.id": consumers, "commit.group.id": "etl"}
    warn_of_groups(given, read_options(given, streaming=True))
    assert len(caplog.records) == warnings


class CountedName(str):
    """A topic's name that counts to how many others it was compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.fault("scale-C8")
def test_partition_is_found_among_thousands_without_a_look_at_each() -> None:
    subscription = chosen(assign=json.dumps({"t": list(range(1_000))})).subscription

    assert subscription.includes(TopicPartition(CountedName("t"), 999))
    assert CountedName.compared < 10
