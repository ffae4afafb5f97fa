"""ssl.principal.mapping.rules: the cases of Kafka's own test, and its replaceAll."""

from __future__ import annotations

import pytest

from protocol.settings import SettingError
from protocol.tls.principal_rules import NoPrincipal, parse_rules

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (
            RULES,
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
            "duke@sme",
        ),
        (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (RULES, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (RULES, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        ("", "", ""),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:(.*)/$1x/", "CN=a", "CN=axx"),
        ("RULE:^(.*)$/$1x/", "CN=a", "CN=ax"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$2-$0/", "CN=a", "$2-CN=a"),
        (r"RULE:^CN=(.*?)\/(.*)$/$1\/$2\$1/", "CN=a/b", "a/b$1"),
        ("RULE:^CN=(?<who>a)|CN=b$/<$1>/", "CN=b", "<>"),
        ("RULE:^CN=(?<=CN=)(.{1,2})$/$1/U", "CN=ab", "AB"),
        (" RULE:^CN=(x),.*$/$1/ ,, DEFAULT ", "CN=a", "CN=a"),
    ],
)
def test_the_first_rule_that_matches_makes_the_name(rules: str, subject: str, name: str) -> None:
    if rules:
        assert parse_rules(rules).name_of(subject) == name
    else:
        assert parse_rules(rules).rules == ()


def test_a_rule_must_match_the_whole_subject() -> None:
    rules = parse_rules("RULE:CN=(.)/$1/")
    assert rules.name_of("CN=a") == "a"
    with pytest.raises(NoPrincipal, match=r"no rule of ssl\.principal.* matches .*CN=ab"):
        rules.name_of("CN=ab")


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "RULE:^CN=(.*?)$/$1/Lx",
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN=(.*?$/$1/",
        "CN=x",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_rules(text)
    assert refused.value.name == "ssl.principal.mapping.rules"
    assert "Invalid rule" in refused.value.reason
