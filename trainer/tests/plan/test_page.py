"""docs/planner.md's figures are the planner's own: each row is computed here once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from oarlock_api.training import Training
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.communication import fabric
from oarlock_trainer.plan.gpus import gpu
from oarlock_trainer.plan.planner import Gpus, Plan, choose
from oarlock_trainer.plan.work import work_of
from oarlock_trainer.runtime.errors import ConfigurationError

PAGE = (Path(__file__).parents[3] / "docs/planner.md").read_text(encoding="utf-8")
NODES, GPUS = 4, 8


def plan(
    *,
    samples: int,
    accumulation: int = 1,
    pixels: int = 1024,
    compiles: bool = True,
    cards: str = "8x400G",
) -> Plan:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/models/flux"},
            "steps": 10,
            "batchSize": samples,
            "gradientAccumulation": accumulation,
            "resolution": pixels,
            "compile": {"mode": "Default" if compiles else "None"},
            "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        }
    )
    kind = gpu("H100")
    work = work_of(training, FLUX1.published, ranks=NODES * GPUS, ranks_per_node=GPUS)
    return choose(work, training, Gpus(memory=kind.memory, kind=kind, fabric=fabric(cards, gpu=kind)))


def seconds(one: Plan) -> str:
    assert one.speed
    fast, slow = one.speed.seconds, one.speed.slow_seconds
    digits = 2 if fast < 0.55 else 0 if fast > 9.95 else 1
    return f"{fast:.{digits}f} - {slow:.{digits}f}"


def recomputed(one: Plan) -> str:
    words = f"{one.recomputed} of 57" if one.recomputed else "none"
    return f"{words}, lean" if one.work.lean else words


@pytest.mark.parametrize(
    ("samples", "accumulation", "compiles"),
    [(8, 1, False), (8, 1, True), (4, 2, True), (2, 4, True), (1, 8, True)],
)
def test_the_rows_of_the_effective_batch_are_the_planners(samples: int, accumulation: int, *, compiles: bool) -> None:
    one = plan(samples=samples, accumulation=accumulation, compiles=compiles)
    assert one.speed
    fast, slow = (one.speed.utilization(time) * 100 for time in (one.speed.seconds, one.speed.slow_seconds))
    batch = f"batchSize {samples}" + (f" x accumulation {accumulation}" if accumulation > 1 else "")
    cells = [
        batch,
        "yes" if compiles else "no",
        str(one.zero_stage),
        recomputed(one),
        f"{one.memory.total / 1e9:.1f}",
        seconds(one),
        f"{fast:.0f} - {slow:.0f}",
    ]
    assert f"| {' | '.join(cells)} |" in PAGE


def test_the_parts_of_a_gpus_memory_are_the_planners() -> None:
    one = plan(samples=8)
    parts = {part.name: f"{part.bytes / 1e9:.1f}" for part in one.memory.components}
    said = ", ".join(f"{'the block at work' if name == 'block' else name} {size}" for name, size in parts.items())
    assert f"The second row, GB of one GPU: {said}." in " ".join(PAGE.split())


def test_the_rows_of_fabrics_and_of_small_pictures_are_the_planners() -> None:
    fabrics = [seconds(plan(samples=8, cards=cards)) for cards in ("8x400G", "8x200G", "1x400G", "1x100G", "1x25G")]
    assert f"| s/step | {' | '.join(fabrics)} |" in PAGE
    small = [plan(samples=samples, pixels=512) for samples in (8, 4, 2, 1)]
    assert f"| recomputed blocks | {' | '.join(map(recomputed, small))} |" in PAGE
    assert f"| s/step | {' | '.join(map(seconds, small))} |" in PAGE


def test_the_refusal_is_the_planners() -> None:
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": "/models/flux"},
            "steps": 10,
            "batchSize": 8,
            "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        }
    )
    kind = gpu("H100")
    work = work_of(training, FLUX1.published, ranks=4, ranks_per_node=4)
    with pytest.raises(ConfigurationError) as refused:
        choose(work, training, Gpus(memory=kind.memory, kind=kind, fabric=fabric("NVLink", gpu=kind)))
    said = str(refused.value).splitlines()
    shown = PAGE.partition("## A refusal")[2].partition("```\n")[2].partition("```")[0].splitlines()
    assert len(shown) > 5
    for line in shown:
        head = line.partition("...")[0].rstrip()
        assert any(one.startswith(head) for one in said), line


def test_the_first_jobs_page_has_the_planners_seconds() -> None:
    page = (Path(__file__).parents[3] / "docs/first-job.md").read_text(encoding="utf-8")
    told, uncompiled = (plan(samples=2, accumulation=4).speed, plan(samples=8, compiles=False).speed)
    assert told
    assert uncompiled
    assert f"{told.seconds:.2f} to {told.slow_seconds:.2f} s a step at 1024 px" in page
    assert f"uncompiled {uncompiled.seconds:.2f} to {uncompiled.slow_seconds:.2f} s" in page
