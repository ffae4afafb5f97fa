"""Faults found from outside, to be planted again: stories must find each within 300 seeds."""

from __future__ import annotations

from tests.mutants.planted import SEEDS, PlantedFault, Stories
from tests.mutants.planted_transactions import TRANSACTIONS

ADMINISTRATORS = Stories(
    ("-m", "tests.simulation.administrators", "--first", SEEDS), r"^seed (\d+)$"
)
FETCHES = Stories(("-m", "tests.broker.fetch_story", SEEDS), r"^seed (\d+)$")

PLANTED_FAULTS = (
    PlantedFault("groups-1", seed=3),
    PlantedFault("groups-2", TRANSACTIONS),
    PlantedFault("groups-3", seed=26),
    PlantedFault("groups-4", seed=1),
    PlantedFault("core-R1", ADMINISTRATORS, seed=86),
    PlantedFault("core-R4", ADMINISTRATORS, seed=41),
    PlantedFault("security-1", FETCHES, seed=36),
)
