"""Errors of reading record bytes: the writer of the bytes is wrong, never the reader."""


class CorruptRecord(ValueError):
    """Bytes are not a record batch, or the batch contradicts itself.

    A producer that sends them again is refused again (INVALID_RECORD); a reader may find that the
    log is damaged (CORRUPT_MESSAGE).
    """


class DamagedOnTheWay(CorruptRecord):
    """The bytes are hardly those that were written, as by their checksum (CORRUPT_MESSAGE)."""


class RecordsTooLarge(CorruptRecord):
    """Compressed records are larger than allowed in one batch (MESSAGE_TOO_LARGE)."""

    def __init__(self, codec: str, max_bytes: int) -> None:
        super().__init__(f"{codec} data is larger than the {max_bytes} bytes allowed")


class TooManyRecords(CorruptRecord):
    """A produced set has more messages than are written anew (MESSAGE_TOO_LARGE)."""

    def __init__(self, most: int) -> None:
        super().__init__(f"a set of more than the {most} messages allowed")


class KeyRequired(CorruptRecord):
    """A record has no key, which a compacted topic requires (INVALID_RECORD)."""

    def __init__(self, record: str) -> None:
        super().__init__(f"{record}: no key, which a compacted topic requires")


class UnsupportedMagic(CorruptRecord):
    """The record format `magic` cannot be read here; 0 and 1 are the old messages, 2 a batch."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic} is not supported here")
        self.magic = magic
