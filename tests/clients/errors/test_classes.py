"""The classes of errors: their base, their causes, and whether a call may be repeated."""

import inspect

import pytest

import clients.errors
import groups.zookeeper.member
import offsets.store
from clients.errors import (
    BrokerError,
    ClientError,
    CommitFailed,
    CompressionUnavailable,
    KgroupError,
    SettingError,
    ZooKeeperError,
    from_zookeeper,
)
from protocol.errors import ApiError, ErrorCode
from tests.clients.errors.tried_calls import P0
from zk.api import ConnectionLoss, NoAuth, NoNode, SessionExpired
from zk.znodes import ZnodeError


def test_every_error_of_a_client_is_a_kgroup_error() -> None:
    named = [getattr(clients.errors, name) for name in clients.errors.__all__]
    errors = {kind for kind in named if inspect.isclass(kind)}
    assert all(issubclass(kind, KgroupError) for kind in errors)
    for module in (clients.errors, groups.zookeeper.member, offsets.store):
        raised = {
            kind
            for _, kind in inspect.getmembers(module, inspect.isclass)
            if issubclass(kind, Exception) and kind.__module__ == module.__name__
        }
        assert raised <= errors
    assert issubclass(SettingError, ValueError)
    assert issubclass(BrokerError, ApiError)
    assert issubclass(CompressionUnavailable, RuntimeError)


def test_an_error_says_whether_the_same_call_may_succeed_later() -> None:
    assert BrokerError(ErrorCode.NOT_CONTROLLER).retriable
    assert not BrokerError(ErrorCode.MESSAGE_TOO_LARGE).retriable
    assert CommitFailed({P0: ErrorCode.NOT_COORDINATOR}).retriable
    assert not SettingError("acks", "is odd").retriable
    assert not ClientError("what").retriable


@pytest.mark.parametrize(
    ("cause", "retriable"),
    [
        (ConnectionLoss("away"), True),
        (SessionExpired("over"), True),
        (NoNode("/a"), False),
        (NoAuth("/a"), False),
        (ZnodeError("/a", "it is no number"), False),
    ],
)
def test_what_zookeeper_says_is_a_zookeeper_error_with_its_cause(
    cause: Exception, retriable: bool
) -> None:
    with pytest.raises(ZooKeeperError, match=r"^(ZooKeeper: |/a)") as raised, from_zookeeper():
        raise cause
    assert raised.value.__cause__ is cause
    assert raised.value.retriable is retriable
