"""docs/security.md: its settings load, its commands run, and its table is that of the broker."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from click.testing import CliRunner, Result

from broker.kbroker.command import main
from broker.settings.config import BrokerConfig, load_broker_config
from protocol.acls import Operation
from protocol.api_key import ApiKey
from protocol.needs import NEEDS, Need, Refusal
from protocol.registry import API
from protocol.settings import declared_settings, parse_properties
from protocol.wire import NO_VERSIONS
from tests.broker.authorized_requests.test_acls import AclSite, on_cluster, running
from tests.cluster.typed_guide import script
from tests.stage.processes import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
_, _, REST = PAGE.partition("\n## Who may do what (ACLs)\n")
GUIDE = REST.partition("\n## ")[0]


def test_the_settings_turn_an_authorizer_on() -> None:
    (block,) = re.findall(r"```properties\n(.*?)```", GUIDE, re.DOTALL)
    config, notes = load_broker_config({"zookeeper.connect": "zk"} | parse_properties(block))
    assert notes == []
    policy = config.authorization_policy
    assert policy is not None
    assert sorted(map(str, policy.super_users)) == ["User:admin", "User:broker"]
    known = {setting.name for setting in declared_settings(BrokerConfig).values()}
    assert set(re.findall(r"^\| `([^`]+)` \|", GUIDE, re.MULTILINE)) <= known


async def typed(site: AclSite, line: str) -> Result:
    program, *args = line.split()
    assert program == "kbroker"
    environment = {**os.environ, "KGROUP_BOOTSTRAP_SERVER": site.broker.bootstrap}
    return await asyncio.to_thread(CliRunner().invoke, main, args, env=environment)


async def test_the_commands_do_what_is_said(tmp_path: Path) -> None:
    lines = [line for line in script(GUIDE).splitlines() if line.startswith("kbroker")]
    assert len(lines) == 8
    async with running(tmp_path) as site:
        await site.allow(on_cluster(Operation.ALTER))
        printed = {}
        for line in lines:
            result = await typed(site, line)
            assert result.exit_code == 0, f"{line}: {result.output}"
            printed[line] = result.stdout

        # All that concern the topic: three of a producer, two of a consumer, a prefix, a DENY.
        (matching,) = [text for line, text in printed.items() if "match" in line]
        assert len(matching.splitlines()) == 1 + 7
        # What is left: the topic's ACLs of bob.
        left = await typed(site, "kbroker acls list --principal User:bob")
        assert len(left.stdout.splitlines()) == 1 + 4
        gone = await typed(site, "kbroker acls list --principal User:alice")
        assert gone.stdout.strip() == ""


REFUSED = {
    Refusal.AT_ONCE: "all is refused",
    Refusal.WHOLE: "all is refused",
    Refusal.ENTRY: "the entry is refused",
    Refusal.OMITTED: "it is left out",
    Refusal.SETTINGS: "the topic is created, its settings are not shown",
    Refusal.ENTRY_OR_OMITTED: "the entry is refused; of all, it is left out",
}


def row(key: int, need: Need) -> str:
    api = f"{ApiKey(key).name} {need.when}".rstrip()
    instead = "" if need.instead is None else " ".join(word.word for word in need.instead)
    needs = f"{need.operation.word} {need.kind.word}"
    return f"| {api} | {needs} | {instead} | {REFUSED[need.refusal]} |"


def test_the_table_is_the_broker_s() -> None:
    expected = [
        row(key, need)
        for key in sorted(NEEDS)
        for need in NEEDS[key]
        if key not in API or API[key].served != NO_VERSIONS
    ]
    rows = [line for line in GUIDE.splitlines() if re.match(r"\| [A-Z_]{5,}", line)]
    assert rows == expected, "docs/security.md should have\n" + "\n".join(expected)
