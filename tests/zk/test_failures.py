"""What each error of ZooKeeper speaks of."""

import inspect

import pytest

import zk.api
from zk.api import (
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
from zk.failures import About, about, will_pass

SPEAKS_OF: dict[type[ZkError], About] = {
    NoNode: About.PEER,
    NodeExists: About.PEER,
    BadVersion: About.PEER,
    NotEmpty: About.PEER,
    ConnectionLoss: About.CONNECTION,
    SessionExpired: About.SESSION,
    NoAuth: About.OURSELVES,
    NoChroot: About.OURSELVES,
    RequestTooLarge: About.OURSELVES,
    ZkError: About.OURSELVES,
}


@pytest.mark.parametrize(("kind", "whom"), SPEAKS_OF.items())
def test_an_error_speaks_of_a_peer_the_connection_the_session_or_ourselves(
    kind: type[ZkError], whom: About
) -> None:
    assert about(kind("/a")) is whom
    assert about(MultiFailed(1, kind("/a"))) is whom
    assert will_pass(kind("/a")) is (whom in (About.CONNECTION, About.SESSION))


def test_no_error_is_left_out() -> None:
    kinds = {
        kind for _, kind in inspect.getmembers(zk.api, inspect.isclass) if issubclass(kind, ZkError)
    }
    assert kinds - {MultiFailed} == SPEAKS_OF.keys()
