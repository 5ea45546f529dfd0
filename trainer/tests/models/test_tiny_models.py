"""`oarlock-trainer make-tiny-FAMILY`: what it writes is a model as its publisher has it."""

from __future__ import annotations

import filecmp
from typing import TYPE_CHECKING

import pytest

from oarlock_trainer.models.families import FAMILIES
from oarlock_trainer.ranks import preload

preload.settle_environment()
import family_pipelines  # noqa: E402, F401 - diffusers' pipelines, before anything of ours

from oarlock_trainer.plan.parameters import read_architecture, whole  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tiny_pipelines import Tiny


def test_the_tiny_model_is_the_same_every_time(tiny: Tiny, tmp_path: Path) -> None:
    tiny.record.tiny.write(tmp_path, **tiny.record.options)
    files = [path.relative_to(tiny.folder).as_posix() for path in tiny.folder.rglob("*") if path.is_file()]
    assert len(files) >= tiny.record.files
    assert filecmp.cmpfiles(tiny.folder, tmp_path, files, shallow=False)[0] == files


@pytest.mark.parametrize("tiny", [family.slug for family in FAMILIES.values()], indirect=True)
def test_its_command_says_in_one_line_what_it_wrote_and_others_can_read_it(tiny: Tiny) -> None:
    said = (tiny.folder.parent / f"{tiny.folder.name}.said").read_text()
    assert said == f"wrote a {tiny.family.name} model with tiny random weights to {tiny.folder}\n"
    assert {path.stat().st_mode & 0o777 for path in tiny.folder.rglob("*") if path.is_file()} == {0o644}


def test_the_configuration_of_a_model_on_disk_is_read(tiny: Tiny) -> None:
    weights = tiny.pipeline.transformer.parameters()
    assert whole(read_architecture(tiny.folder, tiny.family)).trained == sum(one.numel() for one in weights)
