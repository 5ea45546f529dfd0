"""What a step on zeros takes of a GPU's memory decides about the plan, before the first step. The device is a faked one."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_api.training import Training
from oarlock_trainer.data.buckets import Size
from oarlock_trainer.loop import trained_model
from oarlock_trainer.plan.gpus import shown_bytes
from oarlock_trainer.plan.memory import need
from oarlock_trainer.plan.planner import Plan, plan_for
from oarlock_trainer.ranks import preload
from oarlock_trainer.runtime.errors import ConfigurationError

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.loop import measured_memory  # noqa: E402
from oarlock_trainer.models.flux.family import FLUX1  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

H100_BYTES = 85_520_809_984
STATES = ("weights", "optimizer")
GB = 10**9


def training(**fields: Any) -> Training:
    body = {
        "model": {"family": "Flux1", "path": "/models/flux"},
        "steps": 10,
        "batchSize": 8,
        "compile": {"mode": "Default"},
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
    }
    return Training.model_validate(body | fields)


def plan_of(job: Training) -> Plan:
    return plan_for(
        job, FLUX1.published, world_size=32, local_world_size=8, gpu_memory_bytes=H100_BYTES,
        gpu_name="NVIDIA H100 80GB HBM3",
    )  # fmt: skip


@dataclass
class FakeGpu:
    """A GPU whose steps take `wrong` times the activations that the model says, beside what is there and what is held."""

    plan: Plan
    wrong: float = 1.0
    recomputed: int = 0
    there: int = 0
    held: int = 0
    steps: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there = sum(self.plan.memory.of(name) for name in STATES)

    def allocated(self) -> int:
        return self.there

    def hold(self, size: int) -> object:
        self.held = size
        return size

    def takes(self, recomputed: int) -> int:
        memory = need(self.plan.work, recomputed=recomputed)
        return self.there + self.held + int(self.wrong * memory.of("activations")) + memory.of("block")

    def peak_of(self, step: Callable[[], None]) -> int | None:
        step()
        self.steps.append(self.recomputed)
        takes = self.takes(self.recomputed)
        return takes if takes <= shown_bytes(self.plan.gpus.memory or 0) else None

    def recompute(self, number: int) -> None:
        self.recomputed = number


def fit(
    job: Training, gpu: FakeGpu, gather: Callable[[int | None], Sequence[int | None]] = lambda own: [own]
) -> tuple[Plan, int]:
    return measured_memory.fit(gpu.plan, job, lambda: None, recompute=gpu.recompute, gauge=gpu, gather=gather)


def test_a_plan_that_fits_is_kept_and_its_step_is_measured_after_it_was_compiled() -> None:
    job = training()
    gpu = FakeGpu(plan_of(job))
    fitted, peak = fit(job, gpu)
    assert fitted is gpu.plan
    assert gpu.steps == [gpu.plan.recomputed] * 2
    assert peak == gpu.takes(gpu.plan.recomputed) <= (gpu.plan.gpus.memory or 0)


def test_the_step_runs_beside_the_gradients_buckets_and_moments_of_a_real_one() -> None:
    job = training()
    gpu = FakeGpu(plan_of(job))
    gpu.there -= gpu.plan.memory.of("optimizer") // 2  # as DeepSpeed starts: masters without moments
    fit(job, gpu)
    later = sum(gpu.plan.memory.of(name) for name in ("gradients", "buckets"))
    assert gpu.held == pytest.approx(later + gpu.plan.memory.of("optimizer") / 2, abs=2)


@pytest.mark.parametrize("wrong", [1.1, 1.2, 1.6])  # more than is planned with; all but full; more than there is
def test_a_step_that_takes_more_than_planned_recomputes_more_blocks_before_step_1(wrong: float) -> None:
    job = training()
    gpu = FakeGpu(plan_of(job), wrong=wrong)
    limit = gpu.plan.gpus.memory or 0
    fitted, peak = fit(job, gpu)
    assert fitted.recomputed == gpu.recomputed > gpu.plan.recomputed
    assert peak == gpu.takes(fitted.recomputed) <= limit < gpu.takes(fitted.recomputed - 1)
    assert fitted.memory == need(gpu.plan.work, recomputed=fitted.recomputed)
    assert len(gpu.steps) <= 9  # of twelve numbers that there are above the plan's, by halves and by what was measured


@given(wrong=st.floats(0.5, 2.0))
def test_what_is_settled_on_fits_however_wrong_the_model_is(wrong: float) -> None:
    job = training(batchSize=4)
    gpu = FakeGpu(plan_of(job), wrong=wrong)
    fitted, peak = fit(job, gpu)
    assert peak == gpu.takes(fitted.recomputed) <= (gpu.plan.gpus.memory or 0)
    assert fitted.recomputed >= gpu.plan.recomputed


@pytest.mark.parametrize("lacking", [None, 78 * GB])
def test_the_rank_that_takes_most_decides_for_all(lacking: int | None) -> None:
    job = training()
    gpu = FakeGpu(plan_of(job))
    before = gpu.plan.recomputed
    fitted, peak = fit(job, gpu, lambda own: [own, lacking if gpu.recomputed <= before else (own or 0) + GB])
    assert fitted.recomputed > before
    assert peak == gpu.takes(fitted.recomputed) + GB


def test_a_number_of_blocks_that_was_asked_for_and_does_not_fit_ends_with_85_and_what_would_fit() -> None:
    job = training(batchSize=2, gradientAccumulation=4, activationCheckpointing={"mode": "Partial", "percent": 50})
    gpu = FakeGpu(plan_of(job), wrong=2.0)
    with pytest.raises(ConfigurationError) as refused:
        fit(job, gpu)
    words = str(refused.value)
    assert refused.value.code == 85
    assert "a step on zeros with 29 of 57 blocks recomputed" in words
    assert "  activationCheckpointing.mode Auto: " in words
    assert all(float(line.split(": ")[1].split(" GB")[0]) < 77.0 for line in words.splitlines() if " GB with " in line)


def test_what_fits_with_no_number_of_recomputed_blocks_is_refused_with_what_was_measured() -> None:
    job = training()
    gpu = FakeGpu(plan_of(job))
    gpu.there += 30 * GB
    with pytest.raises(
        ConfigurationError, match=r"57 of 57 blocks recomputed took \d\d\.\d GB \(measured\), 77\.0 GB can be"
    ):
        fit(job, gpu)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB"), True),
        (RuntimeError("backend='inductor' raised: OutOfMemoryError: CUDA out of memory."), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
    ],
)
def test_a_lack_of_memory_is_known_by_whoever_says_it(error: RuntimeError, *, expected: bool) -> None:
    assert measured_memory.out_of_memory(error) is expected


def started(monkeypatch: pytest.MonkeyPatch, job: Training, warm_up: Callable[..., str]) -> tuple[list[str], Plan]:
    """The order in which a rank with a GPU makes its engine, and the plan that it ends with."""
    order: list[str] = []
    model = SimpleNamespace(forward=SimpleNamespace(recomputed=0))

    def called(name: str, result: object = None) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            order.append(name)
            return result

        return call

    def warmed(*given: Any, **named: Any) -> str:
        order.append("warm_up")
        return warm_up(*given, **named)

    for name, result in (("sharder", None), ("load_model", model), ("tune", "kernel"), ("initialize", "engine")):
        monkeypatch.setattr(trained_model, name, called(name, result))
    monkeypatch.setattr(trained_model, "warm_up", warmed)
    rank_info = SimpleNamespace(rank=1, local_rank=0, local_world_size=8, is_leader=False)
    setup: Any = SimpleNamespace(
        job=SimpleNamespace(training=job, rank_info=rank_info, output=None),
        ranks=SimpleNamespace(device=torch.device("cuda", 0), gather=lambda own: [own]),
        resumed=None,
        prepared=SimpleNamespace(
            buckets=[SimpleNamespace(dataset=0, size=Size(1024, 1024))],
            texts=SimpleNamespace(read=lambda _text: (b"", (512, 4096))),
            empty_text=0,
        ),
    )
    monkeypatch.setattr(trained_model.kept_code, "bring", lambda *_: None)
    _, plan = trained_model.make_engine(setup, plan_of(job))
    return order, plan


def test_a_gpus_warm_up_runs_after_the_engine_took_its_memory_and_settles_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = training()
    gpu = FakeGpu(plan_of(job), wrong=1.15)
    monkeypatch.setattr(measured_memory, "GpuGauge", lambda _device: gpu)

    def warm_up(model: Any, *_: Any, fit: Callable[[Callable[[], None]], None], **__: Any) -> str:
        fit(lambda: gpu.recompute(model.forward.recomputed))
        return "flash"

    order, plan = started(monkeypatch, job, warm_up)
    assert order == ["sharder", "load_model", "tune", "initialize", "warm_up"]
    assert plan.recomputed == gpu.recomputed > gpu.plan.recomputed


def test_no_memory_left_in_the_warm_up_ends_with_85_and_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def warm_up(*_: Any, **__: Any) -> str:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ConfigurationError, match=r"had no memory left.*\n(.*\n)*  batchSize \d with") as refused:
        started(monkeypatch, training(), warm_up)
    assert refused.value.code == 85
