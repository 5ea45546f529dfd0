"""In which order a step asks a GPU for work and waits for it: nothing is waited for between an update and the next step."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from oarlock_api.contract.sections import Recovery
from oarlock_api.contract.status import StepPart
from oarlock_api.training import Training
from oarlock_trainer.engine.host_copy import HostCopy
from oarlock_trainer.loop import train
from oarlock_trainer.loop.saves import TOLD
from oarlock_trainer.loop.step_clock import HostWatch, StepClock
from oarlock_trainer.runtime.errors import LeftOnRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

RANKS = 4
WAIT = "all wait for data"


class Recorded:
    """Two ranks' worth of nothing: an engine, a group of ranks and a checkpoint writer that note what they are asked."""

    def __init__(self, training: Training, *, steps: int, late: bool) -> None:
        self.asked: list[str] = []
        self.reported: list[float] = []
        self.sent: list[Sequence[float]] = []
        rank_info = SimpleNamespace(rank=0, local_rank=0, world_size=RANKS, local_world_size=RANKS, is_leader=True)
        micro_batch = SimpleNamespace(to=lambda _device: SimpleNamespace(sigmas=torch.tensor([0.5])))
        passes = training.gradient_accumulation
        batch = SimpleNamespace(micro_batches=[micro_batch] * passes, weights=[1.0] * passes, regularizes=False)
        self.session: Any = SimpleNamespace(
            job=SimpleNamespace(training=training, file=SimpleNamespace(recovery=Recovery())),
            ranks=SimpleNamespace(rank_info=rank_info, device="cpu", sum=self._sum, bound_waiting=lambda _: None),
            engine=SimpleNamespace(
                model=None,
                weights=None,
                skipped=0,
                backward=lambda _loss: self.asked.append("backward"),
                step=lambda _rate: self.asked.append("update"),
            ),
            before_update=lambda: self.asked.append("copied"),
            prefetch=SimpleNamespace(
                ready=not late,
                wait=lambda: True,
                take=lambda: batch,
                close=lambda: None,
                leave=lambda: self.asked.append("leave the data"),
            ),
            interval=SimpleNamespace(is_due=lambda *_: False),
            shape=SimpleNamespace(has_guidance=False),
            adapters=None,
            validation=None,
            first=0,
            saved=0,
            total=steps,
        )
        self.saves = SimpleNamespace(
            due=lambda *_: (False, False),
            told=lambda _step: (0.0,) * TOLD,
            go_on=lambda *_, **__: None,
            begin=lambda *_, **__: self.save("begin"),
            finish=lambda _step: self.save("finish"),
            have=lambda step: self.asked.append(f"have {step}"),
            finish_copy=lambda _go_on: None,
            newest=None,
        )

    def forward(self, *_: Any, **__: Any) -> torch.Tensor:
        self.asked.append("forward")
        return torch.tensor([float(len(self.asked))], requires_grad=True)

    @staticmethod
    def save(what: str) -> None:
        """Of saving."""

    def report(self, *_: Any, loss: float, **__: Any) -> None:
        self.reported.append(loss)

    def _sum(self, values: Sequence[float]) -> list[float]:
        if len(values) == 2:
            self.asked.append(WAIT)
            there, leaving = values
            return [RANKS * there, leaving]
        self.asked.append("agree")
        leaving, saving, drilling, having_data, *rest = values
        losses = rest[: -TOLD - RANKS]
        agreed = [leaving, saving, drilling, (RANKS - 1) + having_data, *(loss * RANKS for loss in losses)]
        return [*agreed, *[0.0] * (TOLD + RANKS)]


def trained(
    monkeypatch: pytest.MonkeyPatch, *, steps: int, late: bool = False, leaves_at: int | None = None, **fields: Any
) -> Recorded:
    """A run of the loop; it is asked to leave while it waits for the data after `leaves_at` steps."""
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/m"},
            "steps": steps,
            "data": {
                "textEmbeds": {"path": "/t"},
                "imageEmbeds": {"path": "/i"},
                "datasets": [{"name": "d", "source": {"path": "/d"}}],
            },
        }
        | fields
    )
    seen = Recorded(training, steps=steps, late=late)

    class Copied(HostCopy):
        def __init__(self, value: torch.Tensor) -> None:
            seen.asked.append("copy of the loss")
            super().__init__(value)

        def read(self) -> list[float]:
            seen.asked.append("wait for the loss")
            return super().read()

    monkeypatch.setattr(train, "HostCopy", Copied)
    monkeypatch.setattr(train, "sample_losses", seen.forward)
    monkeypatch.setattr(train, "Saves", lambda _session: seen.saves)
    monkeypatch.setattr(train, "report", seen.report)
    monkeypatch.setattr(train, "_evaluate", lambda *_: None)
    stop: Any = SimpleNamespace(requested=False, take_saving=lambda: False, leave_if_requested=lambda: None)

    def wait() -> bool:
        """Whether data come within a second; in the second one without any the rank is asked to leave."""
        if seen.asked[-1:] == [WAIT]:
            stop.requested = True
        return leaves_at is None or len(seen.reported) < leaves_at

    seen.session.prefetch.wait = wait
    said = f"saved step {leaves_at} and left" if leaves_at else "there was nothing to save"
    with (
        StepClock(HostWatch(), around_update=StepPart.OPTIMIZER) as clock,
        nullcontext() if leaves_at is None else pytest.raises(LeftOnRequest, match=said),
    ):
        train.loop(seen.session, stop, clock)
    return seen


STEP = ["forward", "copy of the loss", "backward", "copied", "wait for the loss", "agree", "update"]


def test_ranks_agree_while_the_gpu_computes_gradients_and_never_between_an_update_and_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = trained(monkeypatch, steps=3)
    assert seen.asked[: 1 + 2 * len(STEP)] == [WAIT, *STEP, *STEP]


def test_of_several_micro_batches_the_last_one_s_gradients_are_computed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = trained(monkeypatch, steps=1, gradientAccumulation=3)
    assert seen.asked[1:-1] == 2 * ["forward", "backward", "update"] + STEP
    assert seen.reported == [pytest.approx((2 + 5 + 8) / 3)]  # this step's own losses


def test_while_one_rank_waits_for_its_data_the_others_wait_where_no_agent_takes_it_for_a_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = trained(monkeypatch, steps=2, late=True)
    assert seen.asked[: 2 * len(STEP) + 2] == [WAIT, *STEP, WAIT, *STEP]


def test_ranks_that_wait_for_data_and_are_asked_to_leave_have_their_state_saved_and_take_no_further_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = trained(monkeypatch, steps=3, late=True, leaves_at=1)
    assert seen.asked == [WAIT, *STEP, WAIT, WAIT, "have 1", "leave the data"]


def test_ranks_that_wait_for_their_first_data_and_are_asked_to_leave_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = trained(monkeypatch, steps=3, leaves_at=0)
    assert seen.asked == [WAIT, WAIT, "have 0", "leave the data"]


def test_a_rank_that_is_asked_to_leave_saves_before_it_writes_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    profiler = SimpleNamespace(begin=lambda _step: None, end=lambda _done, *, last: asked.append(f"write {last}"))
    monkeypatch.setattr(train, "Profiler", lambda *_: profiler)
    monkeypatch.setattr(Recorded, "save", asked.append)
    trained(monkeypatch, steps=1)
    assert asked == ["begin", "finish", "write True"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_on_a_gpu_a_loss_is_read_while_the_work_after_it_goes_on() -> None:
    loss = HostCopy(torch.full((1,), 0.25, device="cuda"))
    torch.cuda._sleep(2_000_000_000)
    after = torch.cuda.current_stream().record_event()
    assert loss.read() == [0.25]
    assert not after.query()
