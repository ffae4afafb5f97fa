"""A file that remembers where a query began, until Spark has done so itself.

Spark stores a query's first place only when its first batch has succeeded, and gives a Python
source no place of its own in the checkpoint. After a first batch that failed, "latest" would be
behind records that nobody has read.
"""

import json
from pathlib import Path

from protocol.frozen import frozen
from protocol.settings import SettingError
from spark_connector.stream_offset import Offsets, from_json, to_json

OPTION = "initialOffsetsFile"


@frozen
class InitialFile:
    """The file that the option `initialOffsetsFile` names, on the driver's machine."""

    path: Path

    def read(self) -> Offsets:
        """Return where the query began; {} if there is no file. Raises SettingError."""
        try:
            return from_json(json.loads(self.path.read_text("utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise SettingError(OPTION, f"{self.path} cannot be read: {error}") from error

    def write(self, initial: Offsets) -> None:
        """Write where the query begins, before it reads anything. Raises SettingError."""
        incomplete = self.path.with_name(f"{self.path.name}.incomplete")
        try:
            incomplete.write_text(json.dumps(to_json(initial)), "utf-8")
            incomplete.replace(self.path)
        except OSError as error:
            raise SettingError(OPTION, f"{self.path} cannot be written: {error}") from error

    def delete(self) -> None:
        """Delete the file: Spark has a later place. Raises SettingError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise SettingError(OPTION, f"{self.path} cannot be deleted: {error}") from error
