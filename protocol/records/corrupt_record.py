"""What reading record bytes may raise: the bytes are the peer's fault, never ours."""


class CorruptRecord(ValueError):
    """Bytes that are not a record batch, or one that lies about itself (CORRUPT_MESSAGE)."""


class KeyRequired(CorruptRecord):
    """A whole record without the key that a compacted topic wants (INVALID_RECORD)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: no key, which a compacted topic requires")


class UnsupportedMagic(CorruptRecord):
    """A record format that is not read here: `magic` says which; 0 and 1 are the old messages."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic} is not supported here")
        self.magic = magic
