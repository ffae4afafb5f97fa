"""Stories of consumers and their coordinator, from seeds."""

import pytest

from tests.groups.consumer.pair import Pair

STORIES = 20
QUIET_MS = 120_000


def tell(seed: int, *, is_cooperative: bool) -> Pair:
    """Start, kill, stop consumers, move their coordinator, reset offsets; then let it be quiet."""
    pair = Pair(seed, is_cooperative=is_cooperative)
    rng = pair.rng
    for _ in range(rng.randint(1, 4)):
        pair.start()
    for _ in range(12):
        pair.run(rng.choice([10, 300, 3000, 15_000]))
        deed = rng.random()
        if deed < 0.3 and len(pair.nodes) < 6:
            pair.start()
        elif deed < 0.5 and len(pair.nodes) > 1:
            pair.kill(rng.choice(pair.nodes))
        elif deed < 0.65 and len(pair.nodes) > 1:
            pair.stop(rng.choice(pair.nodes))
        elif deed < 0.8:
            pair.move_coordinator()
        elif deed < 0.9:
            pair.reset()

    pair.is_rough = False
    pair.run(QUIET_MS)
    return pair


@pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("first", range(0, 100, STORIES))
def test_group_settles_and_loses_nothing_whatever_happens(first: int, is_cooperative: bool) -> None:
    for seed in range(first, first + STORIES):
        try:
            tell(seed, is_cooperative=is_cooperative).assert_quiet()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
