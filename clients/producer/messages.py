"""What a producer with `producer.type` is given, and what its handlers see of it.

ProducerData is 0.7's: a topic, a key and any number of values. It comes apart into messages of one
value each, which are 0.8's KeyedMessage.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

_ABSENT: Any = object()


@attrs.frozen(init=False)
class ProducerData:
    """Values of one topic and key, in order.

    A list, another sequence or an iterator holds many values and is read once, here; text, bytes
    and all else are one value. As in 0.7 the key may be left out: `ProducerData(topic, values)`.
    """

    topic: str
    key: Any
    data: tuple[Any, ...]

    def __init__(self, topic: str, key: Any = None, data: Any = _ABSENT) -> None:
        if data is _ABSENT:
            key, data = None, key
        many = isinstance(data, Sequence | Iterator)
        single = isinstance(data, str | bytes | bytearray | memoryview)
        values = tuple(data) if many and not single else (data,)
        self.__attrs_init__(topic, key, values)


@attrs.frozen
class KeyedMessage:
    """One message. `part_key` chooses the partition in the key's place, and is not sent."""

    topic: str
    key: Any = None
    message: Any = None
    part_key: Any = None

    @property
    def partition_key(self) -> Any:
        """What chooses the partition; None leaves it to chance."""
        return self.key if self.part_key is None else self.part_key


Messages = ProducerData | KeyedMessage | Iterable[ProducerData | KeyedMessage]


def keyed_messages(given: Messages) -> list[KeyedMessage]:
    """The messages in what `send` was given. Raises TypeError for anything else."""
    items = [given] if isinstance(given, ProducerData | KeyedMessage) else given
    messages: list[KeyedMessage] = []
    for item in items:
        if isinstance(item, KeyedMessage):
            messages.append(item)
        elif isinstance(item, ProducerData):
            messages += [KeyedMessage(item.topic, item.key, value) for value in item.data]
        else:
            raise TypeError(f"expected ProducerData, got {type(item).__name__}")
    for message in messages:
        if not isinstance(message.topic, str):
            raise TypeError(f"expected a topic's name, got {type(message.topic).__name__}")
    return messages
