"""A full fine-tune of the real width on all GPUs: 50 steps over all buckets, compiled, within the planned memory.

With eight GPUs also of FLUX.1's own weights, from the folder that OARLOCK_FLUX names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.data import photographs
from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from collections.abc import Callable

    from gang import Gang, Run

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
import wide_flux  # noqa: E402

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0
FLUX = os.environ.get("OARLOCK_FLUX", "")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not COUNT, reason="needs a CUDA GPU"),
    pytest.mark.timeout(2400),
]
weights = [
    pytest.mark.skipif(not FLUX, reason="OARLOCK_FLUX names no folder with FLUX.1's weights"),
    pytest.mark.skipif(COUNT < 8, reason="all of FLUX.1 needs eight GPUs"),
]
ASPECTS = (1.0, 1.5, 0.67, 1.33, 0.75, 1.78, 0.56)
STEPS, PIXELS, HEADS = 50, 512, 24
MODE = "Default"


@dataclass(frozen=True, slots=True)
class FineTune:
    """A run to its end. `compiled`: the files of compiled code, at rank 0's first step and at the end."""

    run: Run
    compiled: tuple[set[Path], set[Path]]


@pytest.fixture(scope="module", params=["wide", pytest.param("FLUX.1", marks=weights)])
def fine_tune(
    request: pytest.FixtureRequest, gpu_gang: Gang, tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory
) -> FineTune:
    folder, ranks = tmp_path_factory.mktemp("fine-tune"), max(COUNT, 1)
    own = request.param == "FLUX.1"
    model = Path(FLUX) if own else wide_flux.write(tiny_flux, folder / "wide", heads=HEADS)
    pictures, code = folder / "photos", folder / "code"
    photographs.write(pictures, count=2 * ranks * len(ASPECTS), shorter_side=PIXELS, aspects=ASPECTS)
    at_first: list[set[Path]] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["rank"] == 0 and not at_first:
            at_first.append(set(code.rglob("*.py")))

    store = {name: {"path": str(folder / name)} for name in ("textEmbeds", "imageEmbeds")}
    training = gpu_gang.training(
        model={"family": "Flux1", "path": str(model)},
        data=gpu_gang.data(pictures, **store),
        resolution=PIXELS,
        batchSize=1,
        steps=STEPS,
        compile={"mode": MODE},
        checkpoint={},
        optimizer={"learningRate": 1e-5},
    )
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(code)}
    facts: dict[str, Any] = {"ranks": ranks, "gpus_per_node": COUNT, "environment": environment}
    found = gpu_gang.run(folder / "job", training, on_event=on_event, **facts)
    assert set(found.codes.values()) == {0}, gpu_gang.log()
    return FineTune(run=found, compiled=(at_first[0], set(code.rglob("*.py"))))


def test_fifty_steps_over_all_buckets_skip_no_update(
    fine_tune: FineTune, record_property: Callable[[str, object], None]
) -> None:
    steps = [event for event in fine_tune.run.of("step") if event["rank"] == 0]
    skipped = max(event.get("skippedUpdates") or 0 for event in steps)
    record_property("skipped updates", skipped)
    assert [event["step"] for event in steps] == list(range(1, STEPS + 1))
    assert all(torch.isfinite(torch.tensor(event["loss"])) for event in steps)
    assert steps[-1]["epoch"] > steps[0]["epoch"]  # every picture was taken, and so every bucket
    assert skipped == 0


def test_nothing_is_compiled_after_the_first_step(
    fine_tune: FineTune, record_property: Callable[[str, object], None]
) -> None:
    first, last = fine_tune.compiled
    notes = [event["message"] for event in fine_tune.run.of("note") if event["rank"] == 0]
    record_property("compiled", f"{len(first)} files of code; {notes[-1] if notes else 'no shape was told'}")
    assert first
    assert last == first


def test_the_most_that_a_gpu_took_is_within_the_plan_and_not_much_less(
    fine_tune: FineTune, record_property: Callable[[str, object], None]
) -> None:
    planned = fine_tune.run.of("plan")[-1]["memoryBytes"]
    peak = max(event.get("memoryPeakBytes") or 0 for event in fine_tune.run.of("step"))
    record_property("memory", f"{peak / 1e9:.2f} GB of {planned / 1e9:.2f} GB planned (model)")
    assert 0.5 * planned < peak <= planned
