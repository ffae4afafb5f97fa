"""Named clusters: what the file may hold, and which address a command takes."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from clients.command_line.named_clusters import parse_clusters
from clients.command_line.output import Target, target_options
from clients.kgroup.command import main
from protocol.settings import SettingError

FILE = """
default = "prod"

[clusters.prod]
bootstrap-server = "prod:9092"
zookeeper = "prod:2181/kafka"
timeout = 900

[clusters.staging]
bootstrap-server = "staging:9092"
command-config = "staging.properties"
"""


@click.command()
@target_options
def show_target(target: Target) -> None:
    """Print the target as a line."""
    settings = ",".join(f"{name}={value}" for name, value in target.settings.items())
    click.echo(f"{target.bootstrap} {target.zookeeper} {target.timeout_ms} {settings}".rstrip())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of settings with FILE, as XDG_CONFIG_HOME names it."""
    folder = tmp_path / "kgroup"
    folder.mkdir()
    (folder / "config.toml").write_text(FILE)
    (folder / "staging.properties").write_text("client.id=from-file\n")
    return tmp_path


OTHERS = "bootstrap.servers=file:1,zookeeper.connect=file:2"
"""The settings of a file of another cluster."""
BOTH = {"KGROUP_BOOTSTRAP_SERVER": "env:1", "KGROUP_ZOOKEEPER": "env:2"}


@pytest.mark.parametrize(
    ("args", "env", "target"),
    [
        ("", {}, "prod:9092 prod:2181/kafka 900"),
        ("-c staging", {}, "staging:9092 None 5000 client.id=from-file"),
        ("", {"KGROUP_CLUSTER": "staging"}, "staging:9092 None 5000 client.id=from-file"),
        ("-b mine:1", {"KGROUP_CLUSTER": "staging"}, "mine:1 None 5000"),
        ("-b mine:1 -c prod", {}, "mine:1 prod:2181/kafka 900"),
        ("", {"KGROUP_BOOTSTRAP_SERVER": "env:1"}, "env:1 None 5000"),
        ("", {"KGROUP_ZOOKEEPER": "env:2"}, "None env:2 5000"),
        ("-c prod", {"KGROUP_BOOTSTRAP_SERVER": "env:1"}, "prod:9092 prod:2181/kafka 900"),
        ("-c staging", {"KGROUP_ZOOKEEPER": "env:2"}, "staging:9092 None 5000 client.id=from-file"),
        ("-c prod --timeout 7", {}, "prod:9092 prod:2181/kafka 7"),
        ("-c prod --command-config FILE", {}, f"prod:9092 prod:2181/kafka 900 {OTHERS}"),
        ("-c staging --command-config FILE", {}, f"staging:9092 None 5000 {OTHERS}"),
        ("--command-config FILE", {}, f"file:1 file:2 5000 {OTHERS}"),
        ("--command-config FILE", BOTH, f"file:1 file:2 5000 {OTHERS}"),
        ("--command-config FILE -b mine:1", BOTH, f"mine:1 file:2 5000 {OTHERS}"),
        ("-b mine:1", BOTH, "mine:1 env:2 5000"),
        ("--bootstrap-server=", BOTH, "None env:2 5000"),
    ],
)
@pytest.mark.fault("strangers-17")
def test_the_nearest_address_wins(home: Path, args: str, env: dict[str, str], target: str) -> None:
    env = {"XDG_CONFIG_HOME": str(home), **env}
    (home / "file.properties").write_text(OTHERS.replace(",", "\n"))
    words = args.replace("FILE", str(home / "file.properties")).split()
    result = CliRunner().invoke(show_target, words, env=env)
    assert result.output == f"{target}\n"


def test_without_a_file_the_default_is_a_broker_on_this_machine(tmp_path: Path) -> None:
    result = CliRunner().invoke(show_target, [], env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert result.output == "localhost:9092 None 5000\n"


def clusters(home: Path, *args: str) -> Result:
    return CliRunner().invoke(main, args, env={"XDG_CONFIG_HOME": str(home)})


def test_clusters_are_listed_with_the_default_marked(home: Path) -> None:
    lines = clusters(home, "clusters").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["CLUSTER", "DEFAULT", "BOOTSTRAP-SERVER", "ZOOKEEPER", "COMMAND-CONFIG", "TIMEOUT"],
        ["prod", "*", "prod:9092", "prod:2181/kafka", "-", "900"],
        ["staging", "staging:9092", "-", f"{home}/kgroup/staging.properties", "-"],
    ]


def test_no_file_is_said_with_the_place_where_it_would_be(tmp_path: Path) -> None:
    result = clusters(tmp_path, "clusters")
    place = tmp_path / "kgroup" / "config.toml"
    assert result.stderr == f"No clusters: {place} has no table [clusters.NAME].\n"
    assert result.exit_code == 0


def test_an_unknown_name_is_answered_with_the_one_that_was_meant(home: Path) -> None:
    result = clusters(home, "list", "-c", "stagin")
    place = home / "kgroup" / "config.toml"
    assert result.exit_code == 2
    assert result.stderr == f"error: cluster stagin: not in {place}; did you mean staging?\n"
    assert "known are: prod, staging" in clusters(home, "list", "--cluster", "x").stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[clusters.prod]\nbootstrap-server = prod:9092", "line 2"),
        ("[clusters.prod]\nserver = 'p'", "clusters.prod.server: unknown; a cluster has boot"),
        ("[clusters.prod]\ntimeout = 'p'", "clusters.prod.timeout: 'p' is of the wrong type"),
        ("[clusters.prod]\ntimeout = 0", "clusters.prod.timeout: less than 1 ms"),
        ("clusters = 1", "clusters: 1 is of the wrong type"),
        ("default = 'p'", "cluster p: not in config.toml; known are: none"),
        ("[cluster.prod]", "cluster: neither default nor a table"),
    ],
)
def test_a_broken_file_is_refused_with_its_line_or_key(text: str, reason: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_clusters(text, Path("config.toml"))
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
