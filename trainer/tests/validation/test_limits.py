"""What a validation may cost: time, and pictures that come to nothing. One rank, the tiny model, a clock of our own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.engine import process_group
from oarlock_trainer.models import transformer
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.plan.parameters import read_architecture
from oarlock_trainer.runtime.job import Job, RankInfo
from oarlock_trainer.storage.locations import Locations
from oarlock_trainer.validation.image_requests import read_image_requests
from oarlock_trainer.validation.references import References
from oarlock_trainer.validation.texts import prepare_texts
from oarlock_trainer.validation.validation import MOST_SECONDS, Validation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from oarlock_trainer.engine.process_group import RankGroup


def job(output: Path, model: Path) -> Job:
    prompts = [{"name": name, "prompt": name} for name in ("boat", "cat", "moon")]
    body = {
        "model": {"family": "Flux1", "path": str(model)},
        "steps": 1,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/data"}}]},
        "validation": {"everySteps": 1, "prompts": prompts, "resolutions": ["32x32"], "inferenceSteps": 2},
    }
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(output), training=body,
    )  # fmt: skip
    rank_info = RankInfo(rank=0, local_rank=0, world_size=1, local_world_size=1)
    return Job(file=file, training=Training.model_validate(body), rank_info=rank_info, simulate_gpus=False)


@pytest.fixture
def ranks(tmp_path: Path, tiny_flux: Path) -> Iterator[RankGroup]:
    torch.set_num_threads(1)  # as ranks on the CPU have it: more of them fight for two cores
    yield process_group.join(job(tmp_path, tiny_flux), store=distributed.HashStore())
    process_group.leave()


def validation(output: Path, model: Path, ranks: RankGroup, **clock: Callable[[], float]) -> Validation:
    one = job(output, model)
    wanted = read_image_requests(one, Locations())
    texts = prepare_texts(one, Locations(), ranks, wanted, go_on=lambda: None)
    none = References(output)
    return Validation(one, ranks, wanted, texts, none, architecture=read_architecture(model, FLUX1), **clock)


class Clock:
    """Each picture that is there is so many seconds."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds

    def __call__(self) -> float:
        return self._seconds * len(list(self._folder.glob("step-1/*.png")))


def make(found: Validation, model: Any) -> Any:
    return found.make(nullcontext(model), 1, leaving=lambda: False)


def test_pictures_that_would_take_too_long_by_those_before_are_left_out_told_and_made_another_time(
    tmp_path: Path, tiny_flux: Path, ranks: RankGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transformer.load(tiny_flux)
    slow = Clock(tmp_path / "validation", 0.6 * MOST_SECONDS)
    first = make(validation(tmp_path, tiny_flux, ranks, clock=slow), model)
    assert ([one.file for one in first.made], first.failed, first.left_out) == (["step-1/boat-32x32.png"], [], 2)
    said = capsys.readouterr().err
    assert "step 1: drawing 3 pictures (32x32)" in said
    assert "2 left out: there was no time for them" in said
    second = make(validation(tmp_path, tiny_flux, ranks), model)
    assert (len(second.made), second.left_out) == (2, 0)
    assert make(validation(tmp_path, tiny_flux, ranks), model) is None


def test_weights_that_are_not_finite_make_no_picture_and_no_error(
    tmp_path: Path, tiny_flux: Path, ranks: RankGroup
) -> None:
    model = transformer.load(tiny_flux)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    outcome = make(validation(tmp_path, tiny_flux, ranks), model)
    assert outcome.made == []
    assert [one.partition(" (")[2] for one in outcome.failed] == ["NotFiniteError: its values are not finite)"] * 3
    assert model.training
    assert not (tmp_path / "validation").exists()


def test_an_index_that_cannot_be_read_costs_the_pictures_and_not_the_run(
    tmp_path: Path, tiny_flux: Path, ranks: RankGroup, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "validation/index.json").mkdir(parents=True)
    assert make(validation(tmp_path, tiny_flux, ranks), transformer.load(tiny_flux)) is None
    assert "no pictures of step 1: those that are there could not be read" in capsys.readouterr().err


def test_prompts_are_encoded_once_for_all_attempts(tmp_path: Path, tiny_flux: Path, ranks: RankGroup) -> None:
    validation(tmp_path, tiny_flux, ranks)
    (file,) = (tmp_path / ".oarlock/validation").iterdir()
    before = file.stat().st_mtime_ns
    validation(tmp_path, tiny_flux, ranks)
    assert file.stat().st_mtime_ns == before
