"""Stories of consumers and their coordinator, from seeds."""

import pytest

from tests.groups.consumer.pair import SESSION_MS, Pair

STORIES = 20
QUIET_MS = 120_000


def tell(seed: int, *, is_cooperative: bool) -> Pair:
    """Let consumers and their coordinator come, go, fall silent and reset; then let it be quiet."""
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
        elif pair.nodes:
            pair.cut(rng.choice(pair.nodes), rng.choice([3000, 12_000, 40_000]))

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


@pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])
def test_who_is_cut_off_hands_out_nothing_when_others_have_its_partitions(
    is_cooperative: bool,
) -> None:
    pair = Pair(0, is_cooperative=is_cooperative)
    pair.is_rough = False
    first, second = pair.start(), pair.start()
    pair.run(QUIET_MS)

    pair.cut(first, 10 * SESSION_MS)
    pair.run(2 * SESSION_MS)
    assert len(second.delivering) == pair.partitions, "all are the second one's"
    assert first.consumer.owned, "nobody has told the first one"
    assert first.is_paused
    pair.run(10 * SESSION_MS)
    pair.assert_quiet()


def test_who_is_cut_off_for_less_than_the_others_wait_goes_on_where_it_was() -> None:
    pair = Pair(0, is_cooperative=False)
    pair.is_rough = False
    pair.start()
    second = pair.start()
    pair.run(QUIET_MS)
    generation_id = second.consumer.generation_id

    pair.cut(second, SESSION_MS // 2)
    pair.run(2 * SESSION_MS)
    assert second.consumer.generation_id == generation_id
    pair.assert_quiet()
