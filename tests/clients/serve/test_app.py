"""The page of `kgroup serve`: what it asks of brokers, and that it is in the wheel."""

import json
import tomllib
from pathlib import Path

import pytest
from starlette.requests import Request

from clients.admin import Admin
from clients.command_line.output import Target
from clients.command_line.sessions import Sessions
from clients.serve.app import PAGE, App
from clients.serve.envelope import envelope
from clients.serve.monitor import Monitor
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.processes import ROOT


async def test_events_and_journal_are_not_read_again_at_the_next_refresh(tmp_path: Path) -> None:
    async with ScriptedBroker() as broker, Admin(broker.bootstrap) as admin:
        target = Target(broker.bootstrap, None, {}, timeout_ms=5000)
        app = App(Monitor(Sessions(admin), tmp_path / "h", 0, 1), target)

        async def refresh(group: bytes) -> list[bytes]:
            request = Request({"type": "http", "query_string": b"group=" + group})
            return [bytes((await ask(request)).body) for ask in (app.events, app.journal)]

        first = await refresh(b"orders")
        asked = len(broker.requests)
        assert await refresh(b"orders") == first
        assert len(broker.requests) == asked
        await refresh(b"other")
        assert len(broker.requests) > asked


@pytest.mark.fault("security-12")
def test_json_has_a_name_as_it_is_in_escapes_of_its_own() -> None:
    name = "g\x9b2J\x7f\u202e\u2028é"
    response = envelope("groups", [{"group": name}])
    text = bytes(response.body).decode()
    assert text.isprintable()
    assert json.loads(text)["items"] == [{"group": name}]
    assert response.headers["content-type"] == "application/json"


def test_each_file_of_the_page_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["clients.serve"]
    packed = {path for pattern in patterns for path in PAGE.parent.glob(pattern)}
    assert {path for path in PAGE.rglob("*") if path.is_file()} == packed
