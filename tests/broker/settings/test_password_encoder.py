"""Passwords among the settings in ZooKeeper, as Kafka encrypts them."""

from __future__ import annotations

import base64

import pytest

from broker.settings.password_encoder import PasswordEncoder, PasswordError
from protocol.settings import SettingError

# Made by Kafka's own encoder with the secret "sécret".
SALT = base64.b64encode(bytes(range(256))).decode()
VECTOR = base64.b64encode(b"\x07" * 16).decode()
KAFKAS = (
    "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,"
    f"keyLength:128,salt:{SALT},iterations:4096,encryptedPassword:KKl22C2AbAFwSahlI0GPjA==,"
    f"passwordLength:8,initializationVector:{VECTOR}"
)


def test_kafkas_text_is_decrypted() -> None:
    assert PasswordEncoder(["sécret"]).decode(KAFKAS) == "paßword1"


def test_a_password_comes_back_and_never_in_the_same_text() -> None:
    encoder = PasswordEncoder(["s"])
    first, second = encoder.encode("päss,w:ord="), encoder.encode("päss,w:ord=")
    assert first != second
    assert encoder.decode(first) == encoder.decode(second) == "päss,w:ord="
    assert "päss" not in first


def test_while_the_secret_changes_both_decrypt() -> None:
    text = PasswordEncoder(["old"]).encode("p")
    assert PasswordEncoder(["new", "old"]).decode(text) == "p"
    with pytest.raises(PasswordError, match="another secret"):
        PasswordEncoder(["new"]).decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        KAFKAS.replace("CBC", "ECB"),
        KAFKAS.replace("iterations:4096", "iterations:99999999999"),
        KAFKAS.replace("KKl2", "AAAA"),
        KAFKAS.replace("SHA512", "MD5"),
        KAFKAS.partition(",passwordLength")[0],
    ],
)
def test_a_text_that_cannot_be_decrypted_says_so(text: str) -> None:
    with pytest.raises(PasswordError):
        PasswordEncoder(["sécret"]).decode(text)


def test_without_a_secret_nothing_is_stored() -> None:
    with pytest.raises(SettingError, match="Password encoder secret not configured"):
        PasswordEncoder([]).encode("p")


def test_a_secret_is_in_no_repr() -> None:
    assert "hush" not in repr(PasswordEncoder(["hush"]))
