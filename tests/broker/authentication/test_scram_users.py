"""The users of SCRAM in ZooKeeper: how they are read, followed and changed."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from broker.authentication.scram_changes import (
    CredentialChange,
    Deletion,
    Upsertion,
    apply_changes,
    check_changes,
)
from broker.authentication.scram_users import ScramUsers
from broker.settings.entity_configs import USERS, alter, alter_client
from protocol.errors import ApiError, ErrorCode
from protocol.sasl.scram import (
    SHA_256,
    SHA_512,
    ScramCredential,
    ScramMechanism,
    credential_of,
    parse_credential,
)
from tests.broker.refusing_session import RefusingSession
from tests.broker.spawning import Spawned
from tests.stage.bytecodes import bytecodes_of
from zk.api import ZkError
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import DEFAULT_ENTITY, ClientEntity, EntityConfig


def stored(
    mechanism: ScramMechanism = SHA_256, password: str = "secret", iterations: int = 4096
) -> ScramCredential:
    salted = mechanism.salt_password(password, b"salt", 4096)
    return attrs.evolve(credential_of(mechanism, salted, b"salt", 4096), iterations=iterations)


@attrs.define(eq=False)
class Stage:
    """A broker that follows users, and a tool that writes them."""

    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    tool: MemorySession = attrs.field(init=False)
    refusing: RefusingSession = attrs.field(init=False)
    spawned: Spawned = attrs.field(factory=Spawned)
    users: ScramUsers = attrs.field(init=False)

    async def start(self) -> Stage:
        self.tool = self.zookeeper.session()
        session = self.zookeeper.session()
        await self.tool.start()
        await session.start()
        await self.tool.ensure_path(EntityConfig.directory(USERS))
        await self.tool.ensure_path("/config/changes")
        self.refusing = RefusingSession(session)
        self.users = ScramUsers(self.refusing.session, self.spawned, b"secret")
        return self

    async def put(self, user: str, **settings: str) -> None:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        await alter_client(self.tool, ClientEntity(user=user), lambda old: {**old, **named})

    def finds(self, user: str, credential: ScramCredential) -> bool:
        return self.users.find(SHA_256, user) == credential


SANITIZED = ["alice", "CN=a, O=b", "*~", "zoë", "a%b", "<default>"]


async def test_all_users_are_read_whatever_their_names() -> None:
    stage = await Stage().start()
    credential = stored()
    for user in SANITIZED:
        await stage.put(user, SCRAM_SHA_256=credential.as_text())
    # The default of users has quotas, and is no user.
    await alter(stage.tool, USERS, DEFAULT_ENTITY, lambda old: {"producer_byte_rate": "5"})
    nodes, _ = await stage.tool.children(EntityConfig.directory(USERS))
    assert {"CN%3Da%2C%20O%3Db", "%2A%7E", "%3Cdefault%3E", DEFAULT_ENTITY} <= {*nodes}
    await stage.users.read_all()
    assert all(stage.finds(user, credential) for user in SANITIZED)
    assert not stage.finds("nobody", credential)
    # Of another mechanism, a user is unknown.
    assert stage.users.find(SHA_512, "alice").iterations == 4096


async def test_a_named_user_is_read_again_and_others_are_not() -> None:
    stage = await Stage().start()
    before, after = stored(), stored(password="changed")
    for user in ("a/b", "bob"):
        await stage.put(user, SCRAM_SHA_256=before.as_text())
    await stage.users.read_all()
    for user in ("a/b", "bob"):
        await stage.put(user, SCRAM_SHA_256=after.as_text())
    stage.users.user_changed("a%2Fb")
    stage.users.user_changed("bob/clients/c")
    stage.users.user_changed(DEFAULT_ENTITY)
    await stage.spawned.ended()
    assert stage.finds("a/b", after)
    assert stage.finds("bob", before)


async def test_a_user_whose_credential_is_gone_is_unknown() -> None:
    stage = await Stage().start()
    credential = stored()
    await stage.put("alice", SCRAM_SHA_256=credential.as_text(), producer_byte_rate="5")
    await stage.users.read("alice")
    assert stage.finds("alice", credential)
    await alter(stage.tool, USERS, "alice", lambda old: {"producer_byte_rate": "5"})
    await stage.users.read("alice")
    assert not stage.finds("alice", credential)
    # A node that is gone as a whole, too.
    await stage.put("alice", SCRAM_SHA_256=credential.as_text())
    await stage.users.read_all()
    await stage.tool.delete(EntityConfig.path(USERS, "alice"))
    await stage.users.read_all()
    assert not stage.finds("alice", credential)


async def test_unreadable_and_weak_credentials_are_as_good_as_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await Stage().start()
    weak = stored(iterations=4095)
    await stage.put("weak", SCRAM_SHA_256=weak.as_text())
    await stage.put("broken", SCRAM_SHA_256="salt=c2VjcmV0")
    await stage.users.read_all()
    assert not stage.finds("weak", weak)
    assert stage.users.find(SHA_256, "broken").iterations == 4095  # the most common
    assert "user broken cannot log in by SCRAM-SHA-256" in caplog.text
    assert "c2VjcmV0" not in caplog.text


async def test_unknown_users_show_the_iterations_of_most_known_ones() -> None:
    stage = await Stage().start()
    assert stage.users.find(SHA_256, "ghost").iterations == 4096
    for user, iterations in (("a", 8192), ("b", 8192), ("c", 4096)):
        await stage.put(user, SCRAM_SHA_256=stored(iterations=iterations).as_text())
    await stage.users.read_all()
    assert stage.users.find(SHA_256, "ghost").iterations == 8192
    await alter(stage.tool, USERS, "a", lambda old: {})
    await alter(stage.tool, USERS, "b", lambda old: {})
    await stage.users.read_all()
    assert stage.users.find(SHA_256, "ghost").iterations == 4096


@pytest.mark.fault("security-6")
async def test_an_unknown_user_costs_no_more_than_a_known_one() -> None:
    stage = await Stage().start()
    await stage.put("alice", SCRAM_SHA_256=stored().as_text())
    await stage.users.read_all()
    find = stage.users.find
    find(SHA_256, "alice")
    known = bytecodes_of(lambda: find(SHA_256, "alice"))
    unknown = bytecodes_of(lambda: find(SHA_256, "alina"))
    # A digit of a salt is some ten bytecodes, its HMACs count as calls alone.
    assert abs(known - unknown) < known / 10


async def test_users_that_zookeeper_refuses_to_list_are_read_later() -> None:
    stage = await Stage().start()
    credential = stored()
    await stage.put("alice", SCRAM_SHA_256=credential.as_text())
    stage.refusing.refuse("children", ZkError("refused"))
    await stage.users.read_all()
    assert not stage.finds("alice", credential)
    stage.users.read_unreadable()
    await stage.spawned.ended()
    assert stage.finds("alice", credential)


# ---- changes

SALTED = SHA_256.salt_password("secret", b"salt", 4096)


def upsertion(**changes: object) -> Upsertion:
    return attrs.evolve(Upsertion("alice", 1, 4096, b"salt", SALTED), **changes)  # type: ignore[arg-type]


def test_a_change_leaves_quotas_and_other_mechanisms_alone() -> None:
    settings = {"producer_byte_rate": "5", "SCRAM-SHA-512": "other", "unknown": "x"}
    changed = apply_changes([upsertion()], settings)
    assert parse_credential(changed["SCRAM-SHA-256"]) == stored()
    assert {name: changed[name] for name in settings} == settings
    assert apply_changes([Deletion("alice", 1)], changed) == settings


def test_a_credential_that_does_not_exist_cannot_be_deleted() -> None:
    with pytest.raises(ApiError) as error:
        apply_changes([Deletion("alice", 1)], {"SCRAM-SHA-512": "other"})
    assert error.value.code is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.fault("outside-O13", needs_no_remedy="the stricter check is kept")
@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([upsertion(user="")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([Deletion("", 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([Deletion("alice", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        ([upsertion(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM"),
        ([upsertion(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([upsertion(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        ([upsertion(mechanism=2)], ErrorCode.UNACCEPTABLE_CREDENTIAL, "not one of SCRAM-SHA-512"),
        ([upsertion(salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "salted password"),
        ([Deletion("alice", 1), upsertion()], ErrorCode.DUPLICATE_RESOURCE, "altered twice"),
        ([Deletion("alice", 0), upsertion(iterations=1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM, ""),
    ],
)
def test_a_mistake_in_a_change_has_kafkas_error(
    changes: Sequence[CredentialChange], code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as error:
        check_changes(changes)
    assert error.value.code is code
    assert message in error.value.detail


def test_changes_of_both_mechanisms_are_legal_together() -> None:
    check_changes([Deletion("alice", 2), upsertion()])
