"""Who may write through `kgroup serve`."""

import pytest

from clients.serve.write_access import Refused, WriteAccess, check_access, is_token

TOKEN = "a-token-of-the-tests"
ACCESS = WriteAccess(TOKEN, frozenset({"kgroup.example.org"}))
GOOD = {
    "host": "127.0.0.1:9308",
    "authorization": f"Bearer {TOKEN}",
    "content-type": "application/json",
}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:9308"},
        {"host": "localhost:9308", "origin": "http://localhost:9308"},
        {"host": "[::1]:9308"},
        {"host": "KGROUP.example.org", "origin": "https://kgroup.example.org"},
        {"content-type": "application/json; charset=utf-8"},
        {"authorization": f"bearer {TOKEN}"},
    ],
)
def test_the_token_from_this_server_may_write(headers: dict[str, str]) -> None:
    check_access(ACCESS, GOOD | headers)


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"host": "evil.example.org:9308"}, 403, "UnknownHost"),
        ({"host": ""}, 403, "UnknownHost"),
        ({"host": "[::1"}, 403, "UnknownHost"),
        ({"host": "127.0.0.1.evil.example.org"}, 403, "UnknownHost"),
        ({"host": "localhost:9308, evil.example.org"}, 403, "UnknownHost"),
        ({"origin": "http://evil.example.org"}, 403, "OtherOrigin"),
        ({"origin": "http://127.0.0.1:8080"}, 403, "OtherOrigin"),
        ({"origin": "null"}, 403, "OtherOrigin"),
        ({"authorization": ""}, 401, "NoToken"),
        ({"authorization": TOKEN}, 401, "NoToken"),
        ({"authorization": f"Basic {TOKEN}"}, 401, "WrongToken"),
        ({"authorization": f"Bearer {TOKEN}x"}, 401, "WrongToken"),
        ({"authorization": "Bearer \xe9"}, 401, "WrongToken"),
        ({"content-type": "text/plain"}, 415, "NotJson"),
        ({"content-type": ""}, 415, "NotJson"),
    ],
)
def test_other_requests_are_refused(headers: dict[str, str], status: int, error: str) -> None:
    with pytest.raises(Refused) as refused:
        check_access(ACCESS, GOOD | headers)
    assert (refused.value.status, refused.value.failure.error) == (status, error)
    assert TOKEN not in str(refused.value)


def test_nobody_may_write_where_it_is_not_allowed() -> None:
    with pytest.raises(Refused, match="--allow-writes") as refused:
        check_access(None, GOOD)
    assert refused.value.status == 403


def test_token_is_in_no_description_of_the_access() -> None:
    assert TOKEN not in repr(ACCESS)


@pytest.mark.parametrize("text", ["", "short", "é" * 20, "two words of a token", "a\nb" * 10])
def test_text_that_can_be_guessed_or_not_sent_is_no_token(text: str) -> None:
    assert not is_token(text)
    assert is_token(TOKEN)
