"""How requests are asked again: by a clock and chances that the test gives."""

from __future__ import annotations

from itertools import cycle

import pytest

from oarlock_trainer.runtime.patience import Patience


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def patience(clock: Clock, *chances: float, seconds: float = 60.0) -> Patience:
    chance = cycle(chances)
    return Patience(seconds=seconds, clock=lambda: clock.now, sleep=clock.sleep, chance=lambda: next(chance))


def test_delays_double_up_to_a_limit_and_chance_takes_any_part_of_them() -> None:
    clock, left = Clock(), [9]

    def request() -> str:
        left[0] -= 1
        if left[0]:
            raise ConnectionResetError
        return "answer"

    assert patience(clock, 1.0, 0.0).ask(request, again=lambda _: True) == "answer"
    assert clock.slept == pytest.approx([0.1, 0, 0.4, 0, 1.6, 0, 6.4, 0])
    assert Patience().longest_delay == 10.0


def test_no_try_begins_after_the_deadline_and_the_last_error_comes_out() -> None:
    clock, errors = Clock(), []

    def request() -> None:
        errors.append(ConnectionResetError(len(errors)))
        raise errors[-1]

    with pytest.raises(ConnectionResetError) as raised:
        patience(clock, 1.0, seconds=3.0).ask(request, again=lambda _: True)
    assert raised.value is errors[-1]
    assert clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_what_is_final_is_not_asked_again() -> None:
    clock = Clock()

    def request() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        patience(clock, 1.0).ask(request, again=lambda _: False)
    assert clock.slept == []
