"""The message of a producer with `producer.type`, which its errors carry too."""

from typing import Any

from protocol.frozen import frozen


@frozen
class KeyedMessage:
    """One message. `part_key` chooses the partition in place of the key, and is not sent."""

    topic: str
    key: Any = None
    message: Any = None
    part_key: Any = None

    @property
    def partition_key(self) -> Any:
        """The object that chooses the partition; None leaves the choice to chance."""
        return self.key if self.part_key is None else self.part_key
