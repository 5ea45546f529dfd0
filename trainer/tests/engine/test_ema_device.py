"""Where an average is kept, and who waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.optimization import Ema, EmaDevice
from oarlock_trainer.engine import ema, own_gpu
from oarlock_trainer.engine.engine import MASTER, TensorSlice

if TYPE_CHECKING:
    from collections.abc import Callable


class Counting:
    """An engine of one master, to which each update adds one."""

    updates = skipped = 0

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._master = TensorSlice(name="a", slot=MASTER, start=0, values=torch.zeros(4, device=device))

    def parts(self) -> list[TensorSlice]:
        return [self._master]

    def step(self, _rate: float) -> None:
        self._master.values.add_(1)


class Later:
    """A thread that comes to its work when somebody waits for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def wait(self, _seconds: float | None) -> bool:
        self._work()
        return True

    def result(self) -> None:
        """Nothing."""


def averaging(device: EmaDevice, engine: Any) -> ema.Averaging:
    return ema.Averaging(engine, Ema(decay=0.5, device=device), accumulation=1)


def test_a_step_waits_for_no_average_on_the_cpu_but_who_reads_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema, "Background", Later)
    engine = averaging(EmaDevice.CPU, Counting())
    kept = engine.parts()[-1].values
    engine.step(0.1)
    assert kept.tolist() == [0.0] * 4
    assert engine.parts()[-1].values.tolist() == [1.0] * 4


def test_an_average_on_the_cpu_is_of_the_weights_that_each_update_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ema, "Background", Later)
    on_cpu, on_gpu = (averaging(device, Counting()) for device in (EmaDevice.CPU, EmaDevice.GPU))
    for _ in range(5):
        on_cpu.step(0.1)
        on_gpu.step(0.1)
    assert torch.equal(on_cpu.parts()[-1].values, on_gpu.parts()[-1].values)


def test_the_thread_that_renews_an_average_chooses_its_gpu_first(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[int, torch.device]] = []
    monkeypatch.setattr(own_gpu, "choose", lambda device: chosen.append((threading.get_ident(), device)))
    engine = averaging(EmaDevice.CPU, Counting())
    engine.step(0.1)
    engine.parts()
    assert [device for _, device in chosen] == [torch.device("cpu")]
    assert chosen[0][0] != threading.get_ident()


def test_an_average_is_kept_on_the_gpu_unless_the_job_says_otherwise() -> None:
    assert Ema(decay=0.9).device is EmaDevice.GPU


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_on_a_gpu_both_places_keep_the_same_average_and_no_step_waits_for_the_copy() -> None:
    on_cpu, on_gpu = (averaging(device, Counting("cuda")) for device in (EmaDevice.CPU, EmaDevice.GPU))
    torch.cuda._sleep(2_000_000_000)
    for engine in (on_cpu, on_gpu):
        engine.step(0.1)
    assert not torch.cuda.current_stream().query()
    assert torch.allclose(on_cpu.parts()[-1].values, on_gpu.parts()[-1].values.cpu())
