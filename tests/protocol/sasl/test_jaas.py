"""JAAS strings as Java's StreamTokenizer and Kafka's JaasConfig read them."""

from __future__ import annotations

import pytest

from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_512
from protocol.sasl.jaas import JaasError, parse_jaas, parse_jaas_for

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ('username="u" password="p"', {"username": "u", "password": "p"}),
        ("username=u password=abc123", {"username": "u", "password": "abc123"}),
        ('\n  username = "u"\t\n  password\n=\n"p" ', {"username": "u", "password": "p"}),
        ("user_a.b=c-d_e$f", {"user_a.b": "c-d_e$f"}),
        ("password='it is \"so\"'", {"password": 'it is "so"'}),
        (r'password="a\"b\\c\n\t\101\x"', {"password": 'a"b\\c\n\tAx'}),
        ('password="a/b;c=d,e"', {"password": "a/b;c=d,e"}),
        ("a=b // the rest; of the line\n c=d", {"a": "b", "c": "d"}),
        ("a=b /* not; this */ c=d", {"a": "b", "c": "d"}),
        ("a=b / a lone slash; too\n c=d", {"a": "b", "c": "d"}),
        ("a=b a=c", {"a": "c"}),
        ("user_zoë=größe", {"user_zoë": "größe"}),
        ('password=""', {"password": ""}),
    ],
)
def test_options_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    entry = parse_jaas(f"{PLAIN_LOGIN} Required {text};")
    assert (entry.module, entry.options) == (PLAIN_LOGIN, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not specified"),
        ("// nothing", "not specified"),
        (f"{PLAIN_LOGIN} required", "not terminated by semi-colon"),
        (f'{PLAIN_LOGIN} required username="u"', "not terminated by semi-colon"),
        (f"{PLAIN_LOGIN} required a=b/c;", "not terminated by semi-colon"),
        (f"{PLAIN_LOGIN} required; {PLAIN_LOGIN} required;", "2 login modules, should be 1"),
        (f"{PLAIN_LOGIN} needed a=b;", "control flag"),
        (f"{PLAIN_LOGIN};", "control flag"),
        (f"{PLAIN_LOGIN} required a;", "Value not specified for key"),
        (f"{PLAIN_LOGIN} required a=;", "Value not specified for key 'a'"),
        (f"{PLAIN_LOGIN} required password=12345;", "Value not specified for key 'password'"),
        (f"{PLAIN_LOGIN} required password=1abc;", "Value not specified for key 'password'"),
        (f"{PLAIN_LOGIN} required password=p@q;", "has to be quoted"),
        (f'{PLAIN_LOGIN} required password="p\nq";', "does not end on its line"),
        (f'{PLAIN_LOGIN} required password="p;', "does not end on its line"),
    ],
)
def test_a_bad_text_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JaasError, match=reason):
        parse_jaas(text)


@pytest.mark.parametrize(
    "options",
    [
        "password=sesame@open",
        "password=se same",
        "password=1sesame",
        'password="sesame',
        "password=x/sesame",
        "password=sesame sesame2 sesame3=1",
    ],
)
def test_no_error_shows_a_value(options: str) -> None:
    with pytest.raises(JaasError) as error:
        parse_jaas(f"{PLAIN_LOGIN} required {options};")
    assert "sesame" not in str(error.value).replace("sesame3", "")


def test_an_entry_shows_no_value() -> None:
    assert "sesame" not in repr(parse_jaas(f'{PLAIN_LOGIN} required password="sesame";'))


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
    ],
)
def test_other_modules_are_refused_by_name(module: str) -> None:
    with pytest.raises(JaasError, match=f"{module} is not served"):
        parse_jaas_for(PLAIN, f"{module} required;")


def test_the_module_has_to_be_that_of_the_mechanism() -> None:
    assert parse_jaas_for(SCRAM_SHA_512, f"{SCRAM_LOGIN} required;").module == SCRAM_LOGIN
    with pytest.raises(JaasError, match="is not of OAUTHBEARER, which has"):
        parse_jaas_for(OAUTHBEARER, f"{SCRAM_LOGIN} required;")
