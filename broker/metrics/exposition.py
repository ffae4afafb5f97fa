"""Write samples as Prometheus text (version 0.0.4), a line at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[tuple[object, ...], float]
"""The values of a family's labels, in their order, and the number."""


def format_head(name: str, kind: str, help_text: str) -> str:
    """Return the two lines above the samples of a family."""
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"


def format_samples(name: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Iterator[str]:
    """Yield a line for each sample. A sample with fewer values has only the first labels."""
    for values, number in samples:
        # Shorter than the labels where a total stands beside its parts.
        pairs = ",".join(
            f'{label}="{_escape(str(value))}"' for label, value in zip(labels, values, strict=False)
        )
        braces = f"{{{pairs}}}" if pairs else ""
        yield f"{name}{braces} {float(number)!r}\n"


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text
