"""Which tests are fast, and what one of them may not do."""

from __future__ import annotations

import socket

import pytest

from tests.stage import fast


@pytest.mark.parametrize(
    ("test_id", "fixtures", "is_fast"),
    [
        ("tests/protocol/test_wire.py::test_a", [], True),
        ("tests/protocol/test_wire.py::test_a", ["zk_chroot"], False),
        ("tests/chaos/test_chaos.py::test_a", [], False),
        ("tests/chaos/test_chaos.py::test_a[memory]", [], False),
        ("tests/zk/session/test_nodes.py::test_a[memory]", [], True),
        ("tests/zk/session/test_nodes.py::test_a[memory-null]", [], True),
        ("tests/zk/session/test_nodes.py::test_a[3.9-null]", [], False),
    ],
)
def test_a_test_is_fast_by_its_path_and_its_fixtures(
    test_id: str, fixtures: list[str], is_fast: bool
) -> None:
    assert fast.is_fast(test_id, fixtures) is is_fast


@pytest.mark.parametrize("beginning", fast.SLOW)
def test_what_is_not_fast_is_there_and_says_why(
    beginning: str, pytestconfig: pytest.Config
) -> None:
    path, _, test = beginning.partition("::")
    files = [*pytestconfig.rootpath.glob(f"{path.rstrip('/')}*")]
    assert files
    assert any(f"def {test}" in file.read_text() for file in files if file.is_file()) or not test
    assert fast.SLOW[beginning]


def test_a_connection_is_a_complaint_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_watched", set())
    fast._note("socket.connect", (None, ("127.0.0.1", 1)))
    fast._note("open", ("file",))
    assert (fast.complaint() or "").endswith("['socket.connect']")
    assert fast.complaint() is None


def test_a_pair_of_sockets_within_a_process_is_none() -> None:
    for end in socket.socketpair():
        end.close()
