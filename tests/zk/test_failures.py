"""The cause of each error of ZooKeeper."""

import inspect

import pytest

import zk.api
from zk.api import (
    AuthFailed,
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NoAuth,
    NoChroot,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestTooLarge,
    SessionExpired,
    ZkError,
)
from zk.failures import FailureCause, find_cause, is_transient

CAUSES: dict[type[ZkError], FailureCause] = {
    NoNode: FailureCause.CONFLICT,
    NodeExists: FailureCause.CONFLICT,
    BadVersion: FailureCause.CONFLICT,
    NotEmpty: FailureCause.CONFLICT,
    ConnectionLoss: FailureCause.CONNECTION,
    SessionExpired: FailureCause.SESSION,
    AuthFailed: FailureCause.REFUSAL,
    NoAuth: FailureCause.REFUSAL,
    NoChroot: FailureCause.REFUSAL,
    RequestTooLarge: FailureCause.REFUSAL,
    ZkError: FailureCause.REFUSAL,
}


@pytest.mark.parametrize(("kind", "cause"), CAUSES.items())
def test_each_error_has_its_cause_alone_and_in_a_multi(
    kind: type[ZkError], cause: FailureCause
) -> None:
    assert find_cause(kind("/a")) is cause
    assert find_cause(MultiFailed(1, kind("/a"))) is cause
    assert is_transient(kind("/a")) is (cause in (FailureCause.CONNECTION, FailureCause.SESSION))


def test_no_error_is_left_out() -> None:
    kinds = {
        kind for _, kind in inspect.getmembers(zk.api, inspect.isclass) if issubclass(kind, ZkError)
    }
    assert kinds - {MultiFailed} == CAUSES.keys()
