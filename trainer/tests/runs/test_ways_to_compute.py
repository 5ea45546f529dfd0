"""Real runs with the ways to compute a step: the losses are those of a plain run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kept_builds
import pytest

from oarlock_trainer.data import photographs

if TYPE_CHECKING:
    from gang import Gang

pytestmark = [
    pytest.mark.deep,
    pytest.mark.timeout(900),
]  # compiling takes a minute, and several where others use the processor, too
STEPS = 3
BFLOAT16 = 2e-3
"""Relative distance of losses: compiled code rounds less often."""


@pytest.fixture(scope="module")
def plain(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    return losses(gang, tmp_path_factory.mktemp("plain"))


def losses(gang: Gang, output: Path, *, ranks: int = 2, **fields: Any) -> dict[int, float]:
    run = gang.run(output, gang.training(steps=STEPS, **fields), ranks=ranks, environment=kept_builds.ENVIRONMENT)
    assert set(run.codes.values()) == {0}, run.failure or gang.log()
    assert len(run.losses) == STEPS
    return run.losses


@pytest.mark.parametrize("checkpointing", [{"mode": "Full"}, {"mode": "Partial", "percent": 40}], ids=["all", "some"])
def test_recomputed_blocks_change_no_loss(
    gang: Gang, plain: dict[int, float], tmp_path: Path, checkpointing: dict[str, Any]
) -> None:
    assert losses(gang, tmp_path, activationCheckpointing=checkpointing) == plain


@pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs g++ or clang++ on the CPU"
)
def test_compiled_blocks_train_alike(gang: Gang, tmp_path: Path) -> None:
    """In a rank that was forked from a process in which torch's compiler had been left out.

    Of one shape, because each takes a dozen seconds of g++ (models/compute/test_compiled.py has several).
    """
    squares = tmp_path / "squares"
    squares.mkdir()
    for picture in sorted(gang.pictures.glob("*.png"))[:: len(photographs.ASPECTS)]:
        for file in (picture, picture.with_suffix(".txt")):
            (squares / file.name).hardlink_to(file)
    data = gang.data(squares)
    plain = losses(gang, tmp_path / "plain", ranks=1, data=data)
    compiled = losses(gang, tmp_path / "compiled", ranks=1, data=data, compile={"mode": "Default"})
    assert compiled == pytest.approx(plain, rel=BFLOAT16)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"precision": "FP8"}, "training.precision: FP8 needs a GPU"), ({"attention": "CuDNN"}, "CuDNN needs a GPU")],
    ids=["float8", "kernel"],
)
def test_what_this_hardware_does_not_have_ends_the_job_with_its_remedy(
    gang: Gang, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    run = gang.run(tmp_path, gang.training(steps=STEPS, **fields))
    assert run.codes == {0: 85, 1: 85}
    assert words in run.failure
