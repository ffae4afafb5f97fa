"""Nodes that a session creates, reads, changes and deletes."""

from typing import Any

import pytest

from tests.stage.sessions import SessionStage
from zk.api import BadVersion, Create, NodeExists, NoNode, NotEmpty, ZkError, ZkSession


@pytest.mark.parametrize("data", [None, b"", b"\x00\xff"], ids=["null", "empty", "bytes"])
def test_created_data_reads_back_as_it_was(stage: SessionStage, data: bytes | None) -> None:
    async def scenario(zk: ZkSession) -> Any:
        assert await zk.create("/node", data) == "/node"
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) == data


def test_null_data_set_over_some_reads_back_null(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"some")
        await zk.set("/node", None)
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) is None


def test_what_is_not_there_is_no_node(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        assert await zk.exists("/none") is None
        for call in (zk.get, zk.children, zk.delete):
            with pytest.raises(NoNode):
                await call("/none")
        with pytest.raises(NoNode):
            await zk.set("/none", b"")
        with pytest.raises(NoNode):
            await zk.create("/none/below", b"")

    stage.run(scenario)


def test_what_is_there_is_not_created_again(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"first")
        with pytest.raises(NodeExists):
            await zk.create("/node", b"second", make_parents=True)
        return (await zk.get("/node"))[0]

    assert stage.run(scenario) == b"first"


def test_parents_made_on_the_way_are_persistent_and_null(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/a/b/leaf", b"x", ephemeral=True, make_parents=True)
        data, stat = await zk.get("/a/b")
        return data, stat.ephemeral_owner

    assert stage.run(scenario) == (None, 0)


def test_many_are_read_at_once_and_what_is_not_there_is_none(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/a", b"x")
        await zk.create("/b", None)
        nodes = await zk.get_many(["/a", "/none", "/b", "/a/below"])
        assert nodes == [await zk.get("/a"), None, await zk.get("/b"), None]
        assert await zk.get_many([]) == []

    stage.run(scenario)


def test_more_than_one_request_reads_keep_their_order(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.multi([Create(f"/n{i}", b"%d" % i) for i in range(0, 1500, 3)])
        nodes = await zk.get_many([f"/n{i}" for i in range(1500)])
        assert [node and node[0] for node in nodes] == [
            b"%d" % i if i % 3 == 0 else None for i in range(1500)
        ]

    stage.run(scenario)


def test_sequence_counts_every_creation_below_the_parent(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/queue", None)
        await zk.create("/queue/plain", None)
        await zk.delete("/queue/plain")
        first = await zk.create("/queue/n-", b"", sequence=True)
        await zk.delete(first)
        return first, await zk.create("/queue/other-", b"", sequence=True, ephemeral=True)

    assert stage.run(scenario) == ("/queue/n-0000000001", "/queue/other-0000000002")


def test_set_counts_versions_and_refuses_another(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"0")
        written = (await zk.set("/node", b"1", 0)).version
        with pytest.raises(BadVersion):
            await zk.set("/node", b"2", 0)
        data, stat = await zk.get("/node")
        return written, data, stat.version

    assert stage.run(scenario) == (1, b"1", 1)


def test_delete_refuses_another_version_and_children(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/node/child", None, make_parents=True)
        with pytest.raises(BadVersion):
            await zk.delete("/node", 3)
        with pytest.raises(NotEmpty):
            await zk.delete("/node", 0)
        await zk.delete("/node/child", 0)
        await zk.delete("/node", 0)
        assert await zk.exists("/node") is None

    stage.run(scenario)


def test_cversion_counts_children_created_and_deleted(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/node", b"")
        await zk.create("/node/a", b"")
        await zk.create("/node/b", b"")
        await zk.set("/node/b", b"x")
        await zk.delete("/node/a")
        names, stat = await zk.children("/node")
        return names, stat.cversion, stat.num_children, stat.version, stat.mzxid == stat.czxid

    assert stage.run(scenario) == (["b"], 3, 1, 0, True)


def test_children_come_sorted(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        for name in ("b", "10", "a", "9"):
            await zk.create(f"/dir/{name}", None, make_parents=True)
        return (await zk.children("/dir"))[0]

    assert stage.run(scenario) == ["10", "9", "a", "b"]


def test_a_node_created_again_has_a_greater_czxid(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/node", b"")
        first = (await zk.get("/node"))[1]
        await zk.delete("/node")
        await zk.create("/node", b"")
        changed = await zk.set("/node", b"")
        assert first.czxid < changed.czxid < changed.mzxid

    stage.run(scenario)


def test_ephemeral_has_its_sessions_id_and_no_children(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession, other: ZkSession) -> None:
        await zk.create("/mine", b"", ephemeral=True)
        stat = await other.exists("/mine")
        assert stat
        assert stat.ephemeral_owner == zk.session_id != other.session_id
        with pytest.raises(ZkError):
            await zk.create("/mine/child", b"")

    stage.run(scenario)


@pytest.mark.parametrize("path", ["/a//b", "/a/", "/a/./b", "/a/..", "/a/\0", "/a/\ue000"])
def test_what_is_no_path_is_not_created(stage: SessionStage, path: str) -> None:
    async def scenario(zk: ZkSession) -> None:
        await zk.create("/a", None)
        await zk.create("/a/b", None)
        with pytest.raises(ZkError):
            await zk.create(path, None)
        with pytest.raises(ZkError):
            await zk.multi([Create(path, None)])
        assert await zk.children("/") == (["a"], await zk.exists("/"))
        assert (await zk.children("/a"))[0] == ["b"]

    stage.run(scenario)


def test_ensure_path_makes_what_is_missing_and_may_be_repeated(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        await zk.create("/a", b"kept")
        for _ in range(2):
            await zk.ensure_path("/a/b/c")
        return [(await zk.get(path))[0] for path in ("/a", "/a/b", "/a/b/c")]

    assert stage.run(scenario) == [b"kept", None, None]


def test_delete_recursive_takes_all_below_and_nothing_beside(stage: SessionStage) -> None:
    async def scenario(zk: ZkSession) -> Any:
        for path in ("/a/b/c", "/a/b/d", "/a/e", "/ab"):
            await zk.ensure_path(path)
        await zk.delete_recursive("/a")
        await zk.delete_recursive("/a")
        return (await zk.children("/"))[0]

    assert stage.run(scenario) == ["ab"]
