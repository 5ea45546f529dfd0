"""Networks beside training run on a stream of their own, on the rank's GPU and on no other: by the order of the calls."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_trainer.models.compute.own_stream import OwnStream

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU = torch.device("cuda", 3)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def stream(device: torch.device) -> str:
        made.append(f"make a stream on {device}")
        return "its own"

    @contextmanager
    def entered(one: Any) -> Iterator[None]:
        made.append(f"enter {one}")
        yield
        made.append(f"leave {one}")

    monkeypatch.setattr(torch.cuda, "set_device", lambda device: made.append(f"take {device}"))
    monkeypatch.setattr(torch.cuda, "Stream", stream)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    return made


def test_the_ranks_gpu_is_taken_before_a_stream_is_entered_and_the_stream_stays_the_same(calls: list[str]) -> None:
    own = OwnStream(GPU)
    assert not calls
    with own.entered():
        calls.append("compute")
    assert calls == ["take cuda:3", "make a stream on cuda:3", "enter its own", "compute", "leave its own"]
    calls.clear()
    with own.entered():
        calls.append("compute")
    assert calls == ["take cuda:3", "enter its own", "compute", "leave its own"]


def test_on_the_cpu_nothing_is_called(calls: list[str]) -> None:
    with OwnStream(torch.device("cpu")).entered():
        pass
    assert not calls


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_what_runs_in_it_is_on_another_stream_than_training() -> None:
    with OwnStream(torch.device("cuda", 0)).entered():
        inside = torch.cuda.current_stream()
    assert inside != torch.cuda.default_stream() == torch.cuda.current_stream()
