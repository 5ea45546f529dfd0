"""Copies of a rank's state: what they touch of a GPU, and what is said of their memory."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from faked_gpus import Gpus

from oarlock_trainer.checkpoint.snapshot import Snapshot
from oarlock_trainer.checkpoint.writer import SavedCheckpoint
from oarlock_trainer.engine import own_gpu
from oarlock_trainer.engine.engine import MASTER, TensorSlice
from oarlock_trainer.loop import saves

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN = torch.device("cuda", 3)


def state(device: torch.device | str = "cpu") -> list[TensorSlice]:
    return [
        TensorSlice(name="a", slot=MASTER, start=0, values=torch.arange(5.0, device=device)),
        TensorSlice(name="b", slot=MASTER, start=5, values=torch.full((3,), 7.0, device=device)),
    ]


def save(device: torch.device, parts: Sequence[TensorSlice], *, times: int = 1) -> list[float]:
    """What a snapshot of the parts holds after so many copies."""
    snapshot = Snapshot(sum(part.values.numel() for part in parts) * 4, device)
    for _ in range(times):
        snapshot.begin(parts)
        snapshot.wait()
    kept: list[float] = torch.frombuffer(mmap.mmap(snapshot.descriptor, 0), dtype=torch.float32)[:8].tolist()
    return kept


def test_saving_takes_memory_of_no_gpu_but_the_rank_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(monkeypatch)
    assert save(OWN, state(), times=2) == [0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0]
    assert gpus.contexts == {3}
    assert own_gpu.others(OWN) == []


def test_a_copy_waits_for_the_update_and_nobody_may_update_before_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = Gpus(monkeypatch)
    save(OWN, state())
    assert gpus.asked == [("wait", 3), ("synchronize", 3)]


def test_memory_that_is_pinned_is_no_complaint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Gpus(monkeypatch)
    save(OWN, state())
    assert capsys.readouterr().err == ""


def test_memory_that_could_not_be_pinned_is_told_with_cuda_s_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Gpus(monkeypatch, pinning=2)
    save(OWN, state())
    assert "could not be pinned (CUDA error 2): copies into it are slower" in capsys.readouterr().err


def test_a_gpu_of_another_rank_on_which_this_one_has_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(monkeypatch)
    gpus.contexts |= {0, 3, 5}
    assert own_gpu.others(OWN) == [0, 5]
    assert own_gpu.others(torch.device("cpu")) == []


def test_after_its_first_save_a_rank_says_on_whose_gpus_it_has_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = Gpus(monkeypatch)
    gpus.contexts |= {0, 3}
    settings = SimpleNamespace(training=SimpleNamespace(checkpoint=SimpleNamespace(keep=1)))
    interval = SimpleNamespace(saved=lambda **_: None)
    session: Any = SimpleNamespace(
        ranks=SimpleNamespace(device=OWN), interval=interval, resumed=None, saved=0, job=settings, copies=None
    )
    of_run = saves.Saves(session)
    for step in (1, 2):
        of_run.report(SavedCheckpoint(step, Path("x"), "", 0.0, 0.0))
    assert capsys.readouterr().err.count("memory of GPU 0 beside its own") == 1


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA GPUs")
def test_on_gpus_a_process_that_saves_has_a_context_on_one_alone() -> None:
    program = (
        "import torch\nfrom test_snapshot import save, state\nfrom oarlock_trainer.engine import own_gpu\n"
        "device = torch.device('cuda', 1)\nown_gpu.choose(device)\nsave(device, state(device), times=2)\n"
        "assert torch._C._cuda_hasPrimaryContext(1)\nassert own_gpu.others(device) == [], own_gpu.others(device)\n"
    )
    here = Path(__file__).parent
    paths = f"import sys\nsys.path[:0] = {[str(here), str(here.parent / 'support')]!r}\n"
    subprocess.run([sys.executable, "-c", paths + program], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_on_a_gpu_memory_is_pinned_and_holds_what_the_gpu_had(capfd: pytest.CaptureFixture[str]) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    assert save(device, state(device), times=2) == [0.0, 1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0]
    assert "pinned" not in capfd.readouterr().err
