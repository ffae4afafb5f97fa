"""Sessions that show who they are, on a real ZooKeeper, and who may change what they create."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from zk.acl_change import AT_ONCE, change_acls
from zk.acls import ALL, CREATOR_ALL, EVERYBODY_ALL, EVERYBODY_READS, OPEN, Permission, secure_acl
from zk.api import AuthFailed, Create, NoAuth, SessionState, Stat
from zk.embedded import EmbeddedZooKeeper
from zk.login import NOBODY, SaslLogin, ZkLogin
from zk.session import KazooSession

KAFKA = SaslLogin("kafka", 'se"cret')
BROKER = ZkLogin(sasl=KAFKA, keeps_nodes=True)
KAFKA_ALL = Permission(ALL, "sasl", "kafka")


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/brokers/ids", (CREATOR_ALL, EVERYBODY_READS)),
        ("/consumers", OPEN),
        ("/consumers/g/offsets", (CREATOR_ALL, EVERYBODY_READS)),
        ("/config/users/alice", (CREATOR_ALL,)),
        ("/config/brokers/1", (CREATOR_ALL,)),
        ("/delegation_token/tokens/t", (CREATOR_ALL,)),
        ("/config/topics/t", (CREATOR_ALL, EVERYBODY_READS)),
    ],
)
def test_acls_are_kafka_s(path: str, acl: tuple[Permission, ...]) -> None:
    assert secure_acl(path) == acl


@asynccontextmanager
async def session(
    server: EmbeddedZooKeeper, login: ZkLogin = NOBODY
) -> AsyncIterator[KazooSession]:
    opened = KazooSession(server.connect_string, login=login)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


async def test_login_keeps_nodes_to_brokers(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path / "zk", users={"kafka": KAFKA.password}) as server:
        async with session(server, BROKER) as broker, session(server) as stranger:
            # What a broker creates, in every way.
            await broker.create("/config/users/alice", b"secret", make_parents=True)
            await broker.multi([Create("/consumers", None), Create("/brokers", None)])
            assert await broker.get_acl("/config/users/alice") == {KAFKA_ALL}
            assert await broker.get_acl("/brokers") == {KAFKA_ALL, EVERYBODY_READS}
            assert await broker.get_many(["/config/users/alice", "/none"]) != [None, None]

            # What a stranger may do there.
            with pytest.raises(NoAuth):
                await stranger.get("/config/users/alice")
            with pytest.raises(NoAuth):
                await stranger.set("/brokers", b"mine")
            assert (await stranger.get("/brokers"))[0] is None
            await stranger.create("/consumers/group", None)

            # The same identity in another session is no stranger.
            async with session(server, ZkLogin(sasl=KAFKA)) as tool:
                await tool.set("/brokers", b"ours")
                assert await tool.get_acl("/brokers") == {KAFKA_ALL, EVERYBODY_READS}

        # A password that is wrong is said to be, at once.
        wrong = KazooSession(server.connect_string, login=ZkLogin(sasl=SaslLogin("kafka", "wrong")))
        with pytest.raises(AuthFailed, match="refuses the login"):
            await wrong.start()
        assert wrong.state is SessionState.CLOSED
        assert "wrong" not in repr(wrong.login)

        # The digest scheme needs no server that knows the user.
        async with session(server, ZkLogin(digest="me:pw", keeps_nodes=True)) as owner:
            await owner.create("/mine", None)
            assert EVERYBODY_READS in await owner.get_acl("/mine")
            await owner.set("/mine", b"1")


async def test_tree_is_secured_and_opened_again(tmp_path: Path) -> None:
    async with (
        EmbeddedZooKeeper(tmp_path / "zk", users={"kafka": KAFKA.password}) as server,
        session(server) as stranger,
    ):
        for path in ("/brokers/ids", "/config/users/alice", "/consumers/group"):
            await stranger.create(path, None, make_parents=True)

        async with session(server, BROKER) as tool:
            secured = [path async for path in change_acls(tool, secure=True)]
            assert "/brokers/ids" in secured
            assert "/consumers/group" not in secured
            assert await tool.get_acl("/brokers/ids") == {KAFKA_ALL, EVERYBODY_READS}
            assert await tool.get_acl("/config/users/alice") == {KAFKA_ALL}
            assert await tool.get_acl("/consumers/group") == {EVERYBODY_ALL}
            with pytest.raises(NoAuth):
                await stranger.create("/brokers/ids/9", None)

            opened = [path async for path in change_acls(tool, secure=False)]
            assert opened == secured
        await stranger.create("/brokers/ids/9", None)
        assert await stranger.get_acl("/config/users/alice") == {EVERYBODY_ALL}


class CountedSession(KazooSession):
    """Counts the changes of ACLs that are in flight at the same time."""

    in_flight = most = 0

    async def set_acl(self, path: str, permissions: Sequence[Permission]) -> Stat:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            return await super().set_acl(path, permissions)
        finally:
            self.in_flight -= 1


async def test_many_nodes_are_changed_at_once_and_none_goes_on_after_an_error(
    tmp_path: Path,
) -> None:
    async with (
        EmbeddedZooKeeper(tmp_path / "zk", users={"kafka": KAFKA.password}) as server,
        session(server) as stranger,
    ):
        topics = {f"/brokers/topics/t{number}" for number in range(3 * AT_ONCE)}
        await stranger.create("/brokers/topics", None, make_parents=True)
        await stranger.multi([Create(path, None) for path in topics])

        tool = CountedSession(server.connect_string, login=BROKER)
        await tool.start()
        try:
            assert topics < {path async for path in change_acls(tool, secure=True)}
            assert tool.most == AT_ONCE
        finally:
            await tool.close()

        other = CountedSession(server.connect_string)
        await other.start()
        try:
            with pytest.raises(NoAuth):
                _ = [path async for path in change_acls(other, secure=False)]
            assert other.in_flight == 0
        finally:
            await other.close()
