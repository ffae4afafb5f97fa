"""Show the delays by carrier and hour, as a picture and as a small table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Row = tuple[str, int, int, float]
"""(carrier, hour of day, flights, minutes late in all)"""

PARTS_OF_DAY = {"5-8": range(5, 9), "9-12": range(9, 13), "13-16": range(13, 17),
                "17-20": range(17, 21), "21-24": range(21, 25)}  # fmt: skip


def mean(rows: Sequence[Row]) -> float | None:
    """Return the mean delay in minutes over some rows."""
    flights = sum(row[2] for row in rows)
    return sum(row[3] or 0 for row in rows) / flights if flights else None


def table(rows: Sequence[Row]) -> str:
    """Return the mean delay of each carrier over the day, the worst first."""
    carriers = sorted({row[0] for row in rows})
    of = {carrier: [row for row in rows if row[0] == carrier] for carrier in carriers}
    carriers.sort(key=lambda carrier: -(mean(of[carrier]) or 0))
    head = "carrier  flights  mean delay  " + "".join(f"{part:>8}" for part in PARTS_OF_DAY)
    lines = [head]
    for carrier in carriers:
        flights = sum(row[2] for row in of[carrier])
        cells = [
            mean([row for row in of[carrier] if row[1] in hours]) for hours in PARTS_OF_DAY.values()
        ]
        shown = "".join(f"{'-' if cell is None else f'{cell:.1f}':>8}" for cell in cells)
        lines.append(f"{carrier:<7}  {flights:>7}  {mean(of[carrier]) or 0:>6.1f} min  {shown}")
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a heat map of the mean delay, carriers down and hours across."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    carriers = sorted({row[0] for row in rows}, reverse=True)
    hours = sorted({row[1] for row in rows})
    cells = [
        [mean([r for r in rows if r[0] == carrier and r[1] == hour]) for hour in hours]
        for carrier in carriers
    ]
    values = [[float("nan") if cell is None else cell for cell in line] for line in cells]
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    image = axes.imshow(values, aspect="auto", cmap="RdYlGn_r", vmin=-10, vmax=50)
    axes.set_xticks(range(len(hours)), [str(hour) for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("carrier")
    axes.set_title("Mean departure delay, New York 2013")
    figure.colorbar(image, label="minutes")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
