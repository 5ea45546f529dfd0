"""Every moment of a step is counted once, under what was done in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.contract.status import StepPart
from oarlock_trainer.loop.step_clock import HostWatch, StepClock, watch_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class Hands:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class LateWatch(HostWatch):
    """A device that has come no further than `at`."""

    at = 0.0

    def reached(self, moment: float) -> bool:
        return moment <= self.at


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def clock(hands: Hands) -> Iterator[StepClock]:
    with StepClock(HostWatch(hands), around_update=StepPart.COMMUNICATION, clock=hands) as found:
        yield found


def spent(parts: Any) -> dict[str, float]:
    return {str(part): seconds for part, seconds in parts.items() if seconds}


def test_laps_of_one_part_add_up_and_all_parts_make_the_step(clock: StepClock, hands: Hands) -> None:
    for _ in range(2):
        for part, seconds in ((StepPart.FORWARD, 1.0), (StepPart.BACKWARD, 2.0)):
            hands.time += seconds
            clock.lap(part)
    split = clock.split()
    assert spent(split.parts) == {"forward": 2.0, "backward": 4.0}
    assert set(split.parts) == set(StepPart)
    assert split.seconds == sum(split.parts.values())


def test_each_step_begins_at_nothing(clock: StepClock, hands: Hands) -> None:
    hands.time += 1
    clock.lap(StepPart.DATA)
    clock.split()
    hands.time += 3
    clock.lap(StepPart.REST)
    split = clock.split()
    assert (split.seconds, spent(split.parts)) == (3.0, {"rest": 3.0})


def test_what_is_skipped_belongs_to_no_step(clock: StepClock, hands: Hands) -> None:
    hands.time += 60
    clock.skip()
    hands.time += 1
    clock.lap(StepPart.DATA)
    split = clock.split()
    assert (split.seconds, spent(split.parts)) == (1.0, {"data": 1.0})


def test_of_an_engine_s_step_the_update_counts_apart_however_many_groups_it_has(clock: StepClock, hands: Hands) -> None:
    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            hands.time += 0.25
            return super().step(closure)

    for _ in range(2):
        hands.time += 1  # such as the exchange of a group
        Slow([torch.nn.Parameter(torch.zeros(1))]).step()
    hands.time += 2
    clock.updated()
    assert spent(clock.split().parts) == {"communication": 4.0, "optimizer": 0.5}


def test_an_update_that_an_optimizer_s_base_class_does_counts_once(clock: StepClock, hands: Hands) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    torch.optim.SGD(parameters)  # from its first instance on, torch calls the hooks for the base class, too

    class Slow(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            hands.time += 0.25
            return super().step(closure)

    Slow(parameters).step()
    assert spent(clock.split().parts) == {"optimizer": 0.25}


def test_what_an_engine_does_after_the_gradients_are_there_is_no_part_of_the_backward_pass(
    clock: StepClock, hands: Hands
) -> None:
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
            hands.time += 2
            return gradient

    for _ in range(2):
        loss = Slow.apply(torch.zeros((), requires_grad=True))
        clock.backward_of(loss)
        (loss / 2).backward()
        hands.time += 1
        clock.lap(StepPart.COMMUNICATION)
    assert spent(clock.split().parts) == {"backward": 4.0, "communication": 2.0}


def test_after_its_end_a_clock_sees_no_optimizer(hands: Hands) -> None:
    with StepClock(HostWatch(hands), around_update=StepPart.OPTIMIZER, clock=hands) as clock:
        pass
    hands.time += 1
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).step()
    assert clock.split().seconds == 0


def test_a_lap_that_the_device_has_not_reached_counts_in_the_next_step(hands: Hands) -> None:
    watch = LateWatch(hands)
    with StepClock(watch, around_update=StepPart.OPTIMIZER, clock=hands) as clock:
        for part in (StepPart.FORWARD, StepPart.BACKWARD):
            hands.time += 1
            clock.lap(part)
        watch.at = 101.0
        early = clock.split()
        watch.at = 102.0
        late = clock.split()
    assert (early.seconds, spent(early.parts)) == (2.0, {"forward": 1.0})
    assert (late.seconds, spent(late.parts)) == (0.0, {"backward": 1.0})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_on_a_gpu_a_lap_is_the_gpu_s_own_time_and_nobody_waits_for_it() -> None:
    device = torch.device("cuda")
    cycles = 400_000_000
    with StepClock(watch_of(device), around_update=StepPart.OPTIMIZER) as clock:
        torch.cuda._sleep(cycles)
        clock.lap(StepPart.FORWARD)
        unreached = clock.split()
        torch.cuda.synchronize()
        reached = clock.split()
    assert unreached.parts[StepPart.FORWARD] == 0
    assert unreached.seconds < reached.parts[StepPart.FORWARD]
    assert reached.parts[StepPart.FORWARD] > cycles / 4e9  # no GPU runs at 4 GHz
