"""The delivery of a batch that the caller has encoded: one object for all its records."""

import attrs

from clients.producer.deliveries import RecordMetadata


@attrs.define(eq=False)
class SharedDelivery:
    """Stands for the future of each of `remaining` records; it is done when all of them are.

    A batch may be split, so that some of its records are delivered and others fail. The sender's
    thread sets the results, another one may read them.
    """

    remaining: int
    first: RecordMetadata | None = None
    """Where the record is that was delivered first."""
    error: BaseException | None = None
    """The first failure of a record."""

    def done(self) -> bool:
        """Return whether every record was delivered or has failed."""
        return self.remaining == 0

    def set_result(self, result: RecordMetadata) -> None:
        """Count a record that was delivered."""
        if self.first is None:
            self.first = result
        self.remaining -= 1

    def set_exception(self, error: BaseException) -> None:
        """Count a record that was given up."""
        if self.error is None:
            self.error = error
        self.remaining -= 1

    def exception(self) -> BaseException | None:
        """Return the first failure."""
        return self.error
