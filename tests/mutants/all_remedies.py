"""The remedies of all areas, with the tests that must notice when one is taken away."""

import attrs

from tests.mutants.remedies import (
    bounds,
    checks,
    clients,
    controller,
    disk,
    groups,
    hazards,
    members,
    network,
    replication,
    security,
    streams,
    zookeeper,
)

AREAS = (
    *(hazards, zookeeper, members, groups, streams, clients),
    *(network, security, replication, controller, disk, bounds, checks),
)

REMEDIES = tuple(
    attrs.evolve(remedy, tests=remedy.tests or area.TESTS.get(remedy.module, ""))
    for area in AREAS
    for remedy in area.REMEDIES
)
