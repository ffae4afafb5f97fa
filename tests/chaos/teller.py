"""What tells a story while it happens."""

import time

import attrs


@attrs.define(eq=False)
class Teller:
    """Writes the lines of a story, each with the seconds since its beginning."""

    told: list[str] = attrs.field(factory=list, kw_only=True)
    _began: float = attrs.field(factory=time.monotonic, init=False)

    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began

    def say(self, what: str) -> None:
        """Add a line to the story."""
        self.told.append(f"[{self.now():6.1f} s] {what}")
        print(self.told[-1], flush=True)
