"""The bytes to which the compressed records of one request may decompress, all together."""


class Room:
    """What is left of a bound. What was decompressed counts, good or bad.

    A request of many batches that are refused costs as much as one of batches that are not.
    """

    def __init__(self, max_bytes: int) -> None:
        self.left = max_bytes

    def take(self, decompressed_bytes: int) -> None:
        """Count bytes that were decompressed."""
        self.left = max(self.left - decompressed_bytes, 0)
