"""Names in certificates, as Java writes them: the expected texts are of JDK 17."""

from __future__ import annotations

import pytest

from protocol.tls.der import DerError
from protocol.tls.distinguished_name import write_name

UTF8, PRINTABLE, T61, IA5, VISIBLE, GENERAL, UNIVERSAL, BMP = (
    0x0C,
    0x13,
    0x14,
    0x16,
    0x1A,
    0x1B,
    0x1C,
    0x1E,
)
TYPES = {
    "CN": "0603550403",
    "surname": "0603550404",
    "serialNumber": "0603550405",
    "C": "0603550406",
    "L": "0603550407",
    "ST": "0603550408",
    "STREET": "0603550409",
    "O": "060355040a",
    "OU": "060355040b",
    "title": "060355040c",
    "email": "06092a864886f70d010901",
    "UID": "060a0992268993f22c640101",
    "DC": "060a0992268993f22c640119",
    "private": "06082b06010401ceda00",
}

Pair = tuple[str, int, bytes]


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    return bytes([tag, 0x82]) + length.to_bytes(2, "big") + content


def pair(type_: str, tag: int, value: bytes) -> bytes:
    return element(0x30, bytes.fromhex(TYPES[type_]) + element(tag, value))


def name(*relative: Pair | list[Pair]) -> memoryview:
    sets = [pairs if isinstance(pairs, list) else [pairs] for pairs in relative]
    encoded = [element(0x31, b"".join(pair(*p) for p in pairs)) for pairs in sets]
    return memoryview(element(0x30, b"".join(encoded)))


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (
            name(
                ("C", PRINTABLE, b"US"),
                ("O", UTF8, b"Acme, Inc"),
                ("OU", UTF8, b"a+b=c"),
                ("CN", UTF8, b' x"y\\z;<q>'),
                ("email", IA5, b"a@b.c"),
            ),
            r"1.2.840.113549.1.9.1=#16056140622e63,CN=\ x\"y\\z\;\<q\>,"
            r"OU=a\+b\=c,O=Acme\, Inc,C=US",
        ),
        (
            name(("serialNumber", PRINTABLE, b"12"), ("title", UTF8, b"boss")),
            "2.5.4.12=#0c04626f7373,2.5.4.5=#13023132",
        ),
        (
            name(
                ("STREET", PRINTABLE, b"1 Rd"),
                ("ST", PRINTABLE, b"X"),
                ("L", PRINTABLE, b"Y"),
                ("surname", PRINTABLE, b"s"),
                ("private", UTF8, b"q"),
            ),
            "1.3.6.1.4.1.1289472=#0c0171,2.5.4.4=#130173,L=Y,ST=X,STREET=1 Rd",
        ),
        (
            name(
                ("DC", IA5, b"com"), [("UID", UTF8, b"u1"), ("CN", UTF8, b"m"), ("OU", UTF8, b"x")]
            ),
            "UID=u1+CN=m+OU=x,DC=com",
        ),
        (
            name(
                ("CN", UTF8, b"a#b #c"),
                ("CN", UTF8, b"#lead"),
                ("CN", UTF8, b"  two  "),
                ("CN", UTF8, b""),
                ("CN", UTF8, b" "),
                ("CN", UTF8, b" \\ "),
                ("CN", UTF8, b"\rcr"),
            ),
            "CN=\\\rcr,CN=\\ \\\\\\ ,CN=\\ ,CN=,CN=\\ \\ two\\ \\ ,CN=\\#lead,CN=a\\#b \\#c",
        ),
        (name(("CN", UTF8, "zwölf€\n\tx\0y".encode())), "CN=zwölf€\n\tx\\00y"),
        (
            name(
                ("CN", GENERAL, b"gen"),
                ("CN", T61, b"t"),
                ("CN", VISIBLE, b"vis"),
                ("CN", 0x02, b"\x05"),
                ("O", UNIVERSAL, b"\0\0\0u"),
                ("O", BMP, b"\0o\0k"),
                ("CN", UTF8, b"\xff"),
            ),
            "CN=\ufffd,O=\\00o\\00k,O=#1c0400000075,CN=#020105,CN=#1a03766973,CN=t,CN=gen",
        ),
        (name(("CN", UTF8, b"x" * 300)), "CN=" + "x" * 300),
        (name(), ""),
    ],
    ids=range(9),
)
def test_a_name_reads_as_java_writes_it(encoded: memoryview, text: str) -> None:
    assert write_name(encoded) == text


@pytest.mark.parametrize("encoded", [b"", b"\x30", b"\x30\x05\x31", b"\x30\x82\xff"])
def test_bytes_that_end_early_are_refused(encoded: bytes) -> None:
    with pytest.raises(DerError):
        write_name(memoryview(encoded))
