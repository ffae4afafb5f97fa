"""The embedded server starts, stops, explains why it cannot, and dies with its parent."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stage.processes import ROOT, first_line, lives
from tests.stage.waiting import block_until
from zk import embedded
from zk.embedded import EmbeddedZooKeeper, ZkServerError, find_jars, find_java, find_port
from zk.session import KazooSession


def test_started_server_serves_until_stopped(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with EmbeddedZooKeeper(tmp_path) as server:
            session = KazooSession(server.connect_string)
            await session.start()
            await session.create("/node", b"x")
            await session.close()
            return server.pid

    pid = asyncio.run(scenario())
    assert not lives(pid)
    assert "binding to port" in (tmp_path / "zookeeper.log").read_text()


def test_the_same_directory_continues_with_its_data(tmp_path: Path) -> None:
    async def scenario() -> bytes | None:
        for _ in range(2):
            async with EmbeddedZooKeeper(tmp_path) as server:
                session = KazooSession(server.connect_string)
                await session.start()
                if not await session.exists("/node"):
                    await session.create("/node", b"kept")
                data, _ = await session.get("/node")
                await session.close()
        return data

    assert asyncio.run(scenario()) == b"kept"


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ZkServerError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            asyncio.run(EmbeddedZooKeeper(tmp_path, port).start())


def test_another_port_is_taken_when_the_free_one_is_free_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers that start at once may look at the same free port. Each must serve its own."""

    async def scenario() -> None:
        async with EmbeddedZooKeeper(tmp_path / "first") as first:
            free = find_port("127.0.0.1", 0)
            found = iter((first.port, free))
            monkeypatch.setattr(embedded, "find_port", lambda host, port: next(found))

            async with EmbeddedZooKeeper(tmp_path / "second") as second:
                assert second.port == free
                for server in (first, second):
                    session = KazooSession(server.connect_string)
                    await session.start()
                    await session.create("/node", b"")
                    await session.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("name", ["größe 日本", "a=b:c#d\\e!", " first", "two\nlines"])
def test_a_directory_may_have_any_name(
    name: str, locale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)

    async def scenario() -> None:
        async with EmbeddedZooKeeper(tmp_path / name):
            assert (tmp_path / name / "version-2").is_dir()

    asyncio.run(scenario())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "version-2").write_text("in the way of the data")
    with pytest.raises(ZkServerError, match=r"(?s)exited with status.*version-2"):
        asyncio.run(EmbeddedZooKeeper(tmp_path).start())


def test_a_frozen_server_is_killed_when_it_does_not_stop(tmp_path: Path) -> None:
    async def scenario() -> int:
        async with EmbeddedZooKeeper(tmp_path, stop_timeout_s=0.2) as server:
            os.kill(server.pid, signal.SIGSTOP)
            return server.pid

    assert not lives(asyncio.run(scenario()))


def test_the_server_dies_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    program = """
import asyncio, pathlib, sys
from zk.embedded import EmbeddedZooKeeper
async def main():
    async with EmbeddedZooKeeper(pathlib.Path(sys.argv[1])) as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        try:
            pid = int(first_line(parent))
            assert lives(pid)
        finally:
            # Or the block would wait for it, whatever failed.
            parent.kill()
    try:
        block_until(lambda: not lives(pid), "the server's end after its parent's")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_java_of_java_home_comes_before_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21.0.1").parents[1]))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17.0.2").parent))
    assert find_java() == tmp_path / "home/bin/java"


def test_java_on_the_path_serves_when_that_of_java_home_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "1.8.0_392").parents[1]))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17.0.2").parent))
    assert find_java() == tmp_path / "other/bin/java"


def test_java_too_old_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "11.0.20").parent))
    with pytest.raises(ZkServerError, match="bin/java is Java 11; install Java 17 or newer"):
        find_java()


@pytest.mark.fault("users-12", needs_no_remedy="it is a text")
def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    install = (
        r"none was found; install Java 17 or newer \(Debian: apt install default-jre-headless;"
    )
    with pytest.raises(ZkServerError, match=install):
        find_java()


def test_no_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ZkServerError, match=r"there are none: pip install 'kgroup\[spark\]'"):
        find_jars()


def test_zookeeper_home_is_where_jars_come_from_when_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(ZkServerError, match=f"no ZooKeeper jar in ZOOKEEPER_HOME={tmp_path}"):
        find_jars()
    jar = tmp_path / "lib" / "zookeeper-3.8.4.jar"
    jar.parent.mkdir()
    jar.touch()
    assert find_jars() == [jar]


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java
