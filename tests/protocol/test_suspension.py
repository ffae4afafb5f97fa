"""The clock that goes on while the machine is suspended."""

from protocol.suspension import machine_s, suspended_s


def test_clock_of_the_machine_does_not_go_back() -> None:
    before_s, suspended_before_s = machine_s(), suspended_s()
    assert machine_s() >= before_s
    # To a millisecond, between two looks at two clocks.
    assert suspended_s() >= suspended_before_s - 0.001
