"""`kgroup consume`: the settings of its consumer, from files and options."""

from pathlib import Path
from typing import Any

from clients.command_line.output import Target
from clients.kgroup.consume import SETTING_OF, consumer_settings

NO_OPTIONS: dict[str, Any] = {
    "consumer_config": None,
    "consumer_property": (),
    "group": None,
    "from_beginning": False,
    **dict.fromkeys(SETTING_OF),
}


def test_blanks_at_the_ends_of_a_files_lines_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=g \nauto.offset.reset=smallest\t\n")
    options = NO_OPTIONS | {"consumer_config": file, "group": "g", "from_beginning": True}

    settings = consumer_settings(Target(None, None, {}, 1000), {}, options)

    assert settings == {"group.id": "g", "auto.offset.reset": "smallest"}
