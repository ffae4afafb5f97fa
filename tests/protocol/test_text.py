"""Text that is no UTF-8 is read as Kafka reads it, and what no string can hold is explained."""

import pytest

from protocol.bounds import MAX_STRING_BYTES
from protocol.encoding import decode
from protocol.header import read_request_header
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.primitives import WireError
from protocol.text import explain_unsendable

LATIN_1 = b"caf\xe9"


def sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


@pytest.mark.fault("strangers-149")
@pytest.mark.fault("strangers-174")
@pytest.mark.parametrize(
    ("text", "read"),
    [
        (LATIN_1, "caf\ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xe2\x82 and on", "\ufffd and on"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0\x80\xed\xb0\x80!", "\ufffd\ufffd!"),
        (b"g\xed\xa0", "g\ufffd"),
        ("café".encode(), "café"),
    ],
)
def test_text_that_is_no_utf_8_is_read_with_replacements(text: bytes, read: str) -> None:
    request, _ = decode(FindCoordinatorRequest, 0, sized(text))
    assert request.key == read
    header, _ = read_request_header(bytes.fromhex("0003 0008 0000004d") + sized(text))
    assert header.client_id == read


def test_replaced_text_that_fits_no_string_is_refused() -> None:
    longest = MAX_STRING_BYTES // 3
    request, _ = decode(FindCoordinatorRequest, 0, sized(b"\xff" * longest))
    assert explain_unsendable(request.key) is None
    with pytest.raises(WireError, match="utf-8"):
        decode(FindCoordinatorRequest, 0, sized(b"\xff" * (longest + 1)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("é" * (MAX_STRING_BYTES // 2), None),
        ("a\ud800", "has no UTF-8 form, in which it is sent"),
        ("é" * 16_384, "has 32768 bytes, and can be sent with at most 32767"),
    ],
)
def test_text_that_cannot_be_sent_is_explained(text: str, reason: str | None) -> None:
    assert explain_unsendable(text) == reason
