import pytest

from core_log.appending.message_format import magic_of
from core_log.config import LogConfig
from protocol.settings import SettingError


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.0", 0),
        ("0.8.2.2", 0),
        ("0.9.0", 0),
        ("0.9.0.1", 0),
        ("0.10.0-IV0", 1),
        ("0.10.0", 1),
        ("0.10.2.2", 1),
        ("0.10.2-IV0", 1),
        ("0.11.0-IV0", 2),
        ("0.11.0.3", 2),
        ("1.0", 2),
        ("1.0-IV0", 2),
        ("1.1.1", 2),
        ("2.3-IV1", 2),
        ("2.8", 2),
        ("2.8-IV1", 2),
    ],
)
def test_each_release_has_a_format(version: str, magic: int) -> None:
    assert magic_of(version) == magic


@pytest.mark.parametrize("version", ["", "0.7", "0.10", "0.12.0", "2.9", "3.0", "2", "2.3-IV", "x"])
def test_what_is_no_release_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="no version of Kafka"):
        magic_of(version)
    with pytest.raises(SettingError, match=r"message\.format\.version"):
        LogConfig.from_properties(LogConfig(), {"message.format.version": version})


def test_log_is_kept_in_the_newest_format_unless_told() -> None:
    old = LogConfig.from_properties(LogConfig(), {"message.format.version": "0.9.0.1"})

    assert LogConfig().magic == 2
    assert old.magic == 0
