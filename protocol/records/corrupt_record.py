"""What reading record bytes may raise: the bytes are the peer's fault, never ours."""


class CorruptRecord(ValueError):
    """Bytes that are not a record batch, or one that lies about itself (CORRUPT_MESSAGE)."""


class RecordsTooLarge(CorruptRecord):
    """Records that come to more bytes than may be compressed into one batch (MESSAGE_TOO_LARGE)."""

    def __init__(self, codec: str, max_bytes: int) -> None:
        super().__init__(f"{codec} data is larger than the {max_bytes} bytes allowed")


class KeyRequired(CorruptRecord):
    """A whole record without the key that a compacted topic wants (INVALID_RECORD)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: no key, which a compacted topic requires")


class UnsupportedMagic(CorruptRecord):
    """A record format that is not read here: `magic` says which; 0 and 1 are the old messages."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic} is not supported here")
        self.magic = magic
