"""rust-rdkafka's integration tests, from its crate, with one broker.

Some want it at localhost:9092; they are changed to look elsewhere, where no other broker is.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from tests.interop.builds import built, run, tool
from tests.interop.suites.brokers import SuiteBrokers, Wanted
from tests.interop.suites.suite import Results, Suite, read_cargo, run_to_end

VERSION = "0.37.0"
_PORT = 19099
_CHANGES = {
    "test_high_producers.rs": ('"localhost")', f'"localhost:{_PORT}")'),
    "test_metadata.rs": ("9092", str(_PORT)),
}
_MANIFEST = f"""\
[package]
name = "fetching"
version = "0.0.0"
edition = "2021"

[dependencies]
rdkafka = "={VERSION}"
"""


def _prepare() -> Path:
    cargo = tool("cargo", "cargo")
    tool("g++", "g++")

    def build(directory: Path) -> None:
        fetching = directory / "fetching"
        (fetching / "src").mkdir(parents=True)
        (fetching / "src" / "lib.rs").touch()
        (fetching / "Cargo.toml").write_text(_MANIFEST)
        metadata = json.loads(run([cargo, "metadata", "--format-version=1"], fetching))
        (crate,) = [
            Path(package["manifest_path"]).parent
            for package in metadata["packages"]
            if package["name"] == "rdkafka"
        ]
        source = directory / "source"
        shutil.copytree(crate, source)

        for name, (its_address, address) in _CHANGES.items():
            file = source / "tests" / name
            text = file.read_text()
            assert text.count(its_address) == 1
            file.write_text(text.replace(its_address, address))

        # The versions of all that it depends on are its own.
        tests = [cargo, "test", "--locked", "--no-run", "--tests", "--message-format=json"]
        messages = [json.loads(line) for line in run(tests, source).splitlines()]
        for message in messages:
            if message.get("executable") and "test" in message["target"]["kind"]:
                shutil.copy(message["executable"], directory / message["target"]["name"])
        shutil.rmtree(source / "target")

    recipe = f"{_MANIFEST}{_CHANGES}{inspect.getsource(build)}"
    return built("suite-rust-rdkafka", [], build, recipe=recipe)


def _run(built: Path, brokers: SuiteBrokers, directory: Path, names: Collection[str]) -> Results:
    env = os.environ | {"KAFKA_HOST": brokers.bootstrap, "KAFKA_VERSION": "2.8.2"}
    results = {}
    for program in sorted(built.glob("test_*")):
        prefix = f"{program.name}::"
        tests = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        if names and not tests:
            continue
        command = [str(program), *(["--exact", *tests] if tests else [])]
        log = directory / f"{program.name}.log"
        output = run_to_end(command, built / "source", env, log)
        results |= {prefix + name: outcome for name, outcome in read_cargo(output).items()}
    return results


RUST_RDKAFKA = Suite(
    name="rust-rdkafka",
    # As in its docker-compose.yaml.
    wanted=Wanted(port=_PORT, settings={"num.partitions": "3"}),
    prepare=_prepare,
    run=_run,
    passes=49,
    otherwise={
        "test_low_consumers::test_produce_consume_consumer_nonempty_callback": (
            "The wakeup that it waits for does not come, whichever broker there is."
        ),
    },
)
