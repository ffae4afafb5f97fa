"""Tables, CSV, the JSON envelope, and the addresses that commands connect to."""

import json
from pathlib import Path

import attrs
import click
import pytest
from click.testing import CliRunner, Result

from clients.command_line.output import (
    Column,
    Failure,
    KeyValue,
    Listing,
    Target,
    csv_text,
    envelope,
    show,
    table,
    target_options,
    text_or_base64,
    zookeeper_address,
)
from protocol.errors import ApiError, ErrorCode

COLUMNS = (Column("GROUP", 8), Column("LOG-END-OFFSET"), Column("#MEMBERS", wide=True))
ITEMS = [{"group": "billing", "log_end_offset": 42}, {"group": "a", "members": 3}]


def test_a_column_is_keyed_by_its_title_in_snake_case() -> None:
    assert [column.key for column in COLUMNS] == ["group", "log_end_offset", "members"]


def test_a_table_aligns_columns_and_shows_a_dash_for_nothing() -> None:
    assert table(COLUMNS[:2], ITEMS) == (
        "GROUP    LOG-END-OFFSET\n"  # padded to the minimum width
        "billing  42\n"
        "a        -"
    )


def test_a_list_of_names_has_no_header() -> None:
    assert table(COLUMNS[:1], ITEMS, header=False) == "billing\na"


def test_a_table_without_items_is_empty() -> None:
    assert table(COLUMNS, []) == ""


def test_an_optional_column_is_left_out_where_no_item_has_it() -> None:
    columns = (Column("A"), Column("B", optional=True))
    assert table(columns, [{"a": 1, "b": None}, {"a": 2}]) == "A\n1\n2"
    assert table(columns, [{"a": 1, "b": None}, {"a": 2, "b": 3}]) == "A B\n1 -\n2 3"


def test_items_of_each_key_have_a_table_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (Column("GROUP"), Column("B", optional=True))
    items = [{"group": "x", "b": 1}, {"group": "long"}, {"group": "x", "b": 2}]
    show(Listing("group", columns, items, table_key="group"), "table")
    assert capsys.readouterr().out == "GROUP B\nx     1\nx     2\n\nGROUP\nlong\n"


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert "\x1b" not in table(COLUMNS[:1], [{"group": "\x1b[2J"}])


def test_csv_quotes_and_leaves_nothing_empty() -> None:
    assert csv_text(COLUMNS[:2], [{"group": 'a,"b"'}]) == 'group,log_end_offset\n"a,""b""",'


def test_the_envelope_has_every_column_and_null_for_what_is_unknown() -> None:
    failure = Failure.of("t-0", ApiError(ErrorCode.LEADER_NOT_AVAILABLE))
    assert json.loads(envelope(Listing("group", COLUMNS, ITEMS, [failure]))) == {
        "kind": "group",
        "version": 1,
        "items": [
            {"group": "billing", "log_end_offset": 42, "members": None},
            {"group": "a", "log_end_offset": None, "members": 3},
        ],
        "errors": [
            {
                "what": "t-0",
                "error": "LEADER_NOT_AVAILABLE",
                "message": f"LEADER_NOT_AVAILABLE: {ErrorCode.LEADER_NOT_AVAILABLE.meaning}",
            }
        ],
    }


def test_bytes_that_are_not_utf8_become_base64() -> None:
    assert text_or_base64("key", b"\xff") == {"key_base64": "/w=="}


def test_bytes_that_are_utf8_stay_text_and_null_stays_null() -> None:
    assert text_or_base64("key", "é".encode()) | text_or_base64("value", None) == {
        "key": "é",
        "value": None,
    }


@click.command()
@click.option("-o", "output", default="table")
@click.option("--verbose", is_flag=True)
@click.option("--broken", is_flag=True)
def listing_command(output: str, verbose: bool, broken: bool) -> None:
    errors = [Failure("t-0", "LEADER_NOT_AVAILABLE", "no leader")] if broken else []
    show(Listing("group", COLUMNS, ITEMS, errors), output, verbose=verbose)


def run(command: click.Command, *args: str, **env: str) -> Result:
    return CliRunner().invoke(command, args, env=env)


def test_a_listing_without_failures_exits_zero() -> None:
    assert run(listing_command).exit_code == 0


def test_a_partial_failure_prints_what_is_known_names_the_rest_and_exits_one() -> None:
    result = run(listing_command, "--broken")
    assert (result.exit_code, result.stderr) == (1, "error: t-0: no leader\n")
    assert "billing" in result.stdout


def test_a_partial_failure_in_json_stands_in_the_envelope_and_exits_one() -> None:
    result = run(listing_command, "--broken", "-o", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert len(json.loads(result.stdout)["errors"]) == 1


@pytest.mark.parametrize("args", [("-o", "wide"), ("--verbose",)])
def test_our_own_columns_appear_only_when_asked_for(args: tuple[str, ...]) -> None:
    assert "#MEMBERS" in run(listing_command, *args).stdout
    assert "#MEMBERS" not in run(listing_command).stdout


@click.command()
@target_options
@click.option("--property", "properties", type=KeyValue(), multiple=True)
def target_command(target: Target, properties: tuple[tuple[str, str], ...]) -> None:
    click.echo(f"{target.bootstrap} {target.zookeeper} {target.timeout_ms} {dict(properties)}")


def test_without_an_address_the_local_broker_is_asked() -> None:
    assert run(target_command).stdout == "localhost:9092 None 5000 {}\n"


def test_with_zookeeper_alone_the_brokers_are_left_to_be_found_there() -> None:
    assert run(target_command, "--zookeeper", "zk:2181/k").stdout == "None zk:2181/k 5000 {}\n"


@pytest.mark.parametrize("name", ["-b", "--bootstrap-server", "--bootstrap-servers"])
def test_every_spelling_of_the_brokers_address_is_understood(name: str) -> None:
    assert run(target_command, name, "k:1").stdout.startswith("k:1 ")


def test_addresses_come_from_the_environment_unless_given() -> None:
    env = {"KGROUP_BOOTSTRAP_SERVER": "env:1", "KGROUP_ZOOKEEPER": "env:2"}
    assert run(target_command, "-b", "k:1", **env).stdout == "k:1 env:2 5000 {}\n"


def test_addresses_come_from_the_command_config_unless_given(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=file:1\n")
    assert run(target_command, "--command-config", str(config)).stdout.startswith("file:1 ")


def test_a_properties_file_that_is_no_text_is_wrong_usage(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_bytes(b"\xff=\xff\n")
    result = run(target_command, "--command-config", str(config))
    assert (result.exit_code, "client.properties: not UTF-8" in result.stderr) == (2, True)


@pytest.mark.parametrize("address", ["z", "z:1", "a:1,b:2", "z:2181/chroot/b", "[::1]:2181,z", ""])
def test_an_address_of_zookeeper_is_taken_as_it_is(address: str) -> None:
    assert zookeeper_address(address) == (address or None)


@pytest.mark.parametrize("address", ["z:port", "z:99999", "z:1,,y:1", "/chroot", "a b", "::1"])
def test_an_address_that_zookeeper_cannot_have_is_wrong_usage(address: str) -> None:
    result = run(target_command, "--zookeeper", address)
    assert (result.exit_code, "is not host:port" in result.stderr) == (2, True)


def test_a_property_is_cut_at_its_first_equals_sign() -> None:
    assert "{'key.separator': '='}" in run(target_command, "--property", "key.separator==").stdout


def test_a_property_without_an_equals_sign_is_wrong_usage() -> None:
    result = run(target_command, "--property", "oops")
    assert (result.exit_code, "'oops' is not key=value" in result.stderr) == (2, True)


def test_a_next_command_for_another_cluster_does_not_take_this_ones_zookeeper() -> None:
    here = Target("here:9092", "here:2181", {}, 1000, {"--command-config": "my file"})
    assert here.elsewhere("there:9092").options == (
        " --bootstrap-server there:9092 --command-config 'my file' --zookeeper ''"
    )
    alone = attrs.evolve(here, zookeeper=None)
    assert alone.elsewhere("there:9092").options == (
        " --bootstrap-server there:9092 --command-config 'my file'"
    )
