"""The messages that a producer with `producer.type` takes.

ProducerData is 0.7's: a topic, a key and any number of values. It is split into messages of one
value each, which are 0.8's KeyedMessage.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clients.keyed_message import KeyedMessage
from protocol.frozen import frozen

__all__ = ["KeyedMessage", "Messages", "ProducerData", "keyed_messages"]

_ABSENT: Any = object()


@frozen(init=False)
class ProducerData:
    """Values of one topic and key, in order.

    Lists, other sequences and iterators hold many values and are read once, here. Text, bytes and
    any other object are one value. As in 0.7, `ProducerData(topic, values)` has no key.
    """

    topic: str
    key: Any
    data: tuple[Any, ...]

    def __init__(self, topic: str, key: Any = None, data: Any = _ABSENT) -> None:
        # As in 0.7, the second of two arguments is the data.
        if data is _ABSENT:
            data = key
            key = None

        # Text and bytes are sequences to Python, but one value to a producer.
        is_many = isinstance(data, Sequence | Iterator)
        is_single = isinstance(data, str | bytes | bytearray | memoryview)
        values = tuple(data) if is_many and not is_single else (data,)
        self.__attrs_init__(topic, key, values)


Messages = ProducerData | KeyedMessage | Iterable[ProducerData | KeyedMessage]


def keyed_messages(argument: Messages) -> list[KeyedMessage]:
    """Return the messages in the argument of `send`. Raises TypeError for anything else."""
    items = [argument] if isinstance(argument, ProducerData | KeyedMessage) else argument
    if not isinstance(items, Iterable):
        raise TypeError(f"{items!r} is neither the name of a topic nor messages")
    messages: list[KeyedMessage] = []

    for item in items:
        if isinstance(item, KeyedMessage):
            messages.append(item)
        elif isinstance(item, ProducerData):
            messages += [KeyedMessage(item.topic, item.key, value) for value in item.data]
        else:
            raise TypeError(f"expected ProducerData, got {type(item).__name__}")

    # A wrong topic must not be found after others are sent.
    for message in messages:
        if not isinstance(message.topic, str):
            raise TypeError(f"expected a topic's name, got {type(message.topic).__name__}")

    return messages
