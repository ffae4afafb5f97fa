"""Contestants warm up, take turns, and each keeps its own figures."""

from benchmarks.rounds import Contestant, Rounds, alternate


def test_contestants_warm_up_and_then_take_turns() -> None:
    turns: list[tuple[str, float]] = []

    def contestant(name: str, first: float) -> Contestant:
        def work(seconds: float) -> tuple[float, float]:
            turns.append((name, seconds))
            return first + len(turns), -first

        return work

    figures = alternate([contestant("ours", 10), contestant("peer", 20)], Rounds(2, 5.0, 1.0))

    assert turns == [("ours", 1.0), ("peer", 1.0), *[("ours", 5.0), ("peer", 5.0)] * 2]
    assert figures == [((13, 15), (24, 26)), ((-10, -10), (-20, -20))]
