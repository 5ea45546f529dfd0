"""`oarlock-trainer plan`: what a run would begin with, told without one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path


def manifest(folder: Path, *, gpus: int = 2, **training: Any) -> Path:
    job = {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "flux"},
        "spec": {
            "nodes": 2,
            "gpusPerNode": gpus,
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
            "training": {
                "model": {"family": "Flux1", "path": "/models/flux"},
                "steps": 100,
                "batchSize": 2,
                "resolution": 64,
                "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
                **training,
            },
        },
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all([{"kind": "ConfigMap"}, job]))
    return path


def plan(job: Path, *paths: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "oarlock_trainer", "plan", "-f", str(job)]
    for path in paths:
        command += ["--path", path]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_plan_tells_batch_buckets_steps_and_bytes_for_all_ranks_and_writes_nothing(
    tmp_path: Path, pictures: Path, tiny_flux: Path
) -> None:
    before = sorted(pictures.parent.rglob("*"))
    code, said, complaints = plan(
        manifest(tmp_path), f"/output/photos={pictures}", f"/models={tiny_flux.parent}", f"/models/flux={tiny_flux}"
    )
    assert (code, complaints) == (0, "")
    assert "effective batch 8 = 2 per GPU x 4 GPUs x 1 accumulation" in said
    assert [line.split()[:4] for line in said.splitlines() if line.startswith("photos")] == [
        ["photos", "48x80", "0.60", "8"],
        ["photos", "64x64", "1.00", "8"],
        ["photos", "80x48", "1.67", "8"],
    ]
    assert "steps         100 (3 steps an epoch, 33.3 epochs)" in said
    assert "pictures      24, captions 24" in said
    assert "latents" in said
    assert sorted(pictures.parent.rglob("*")) == before


def test_a_job_that_would_fail_fails_in_the_plan_with_the_same_words(tmp_path: Path, pictures: Path) -> None:
    code, said, complaints = plan(
        manifest(tmp_path, gpus=8), f"/output={pictures.parent}", f"/output/photos={pictures}"
    )
    assert (code, said) == (85, "")
    assert "3 of 3 aspect buckets hold less than one optimizer step" in complaints
    assert "repeats needed" in complaints


def test_a_path_that_is_not_here_is_told_with_its_field(tmp_path: Path) -> None:
    code, _, complaints = plan(manifest(tmp_path))
    assert code == 85
    assert "/output/photos" in complaints
    assert "source" in complaints


def test_a_job_that_only_fills_caches_needs_no_whole_steps(tmp_path: Path, pictures: Path) -> None:
    code, said, _ = plan(manifest(tmp_path, gpus=8, task="Preprocess"), f"/output/photos={pictures}")
    assert code == 0
    assert "steps         none" in said
    assert "pictures      24, captions 24" in said


def test_a_plan_tells_which_pictures_are_left_out_and_that_the_model_was_not_looked_at(
    tmp_path: Path, pictures: Path
) -> None:
    copied = tmp_path / "photos"
    shutil.copytree(pictures, copied)
    names = sorted(copied.glob("*.png"))
    names[0].write_bytes(b"no picture")
    names[1].with_suffix(".txt").unlink()
    code, said, _ = plan(manifest(tmp_path, gpus=1), f"/output/photos={copied}")
    assert code == 0
    assert "photos: 22 of 24 pictures" in said
    assert "1 unreadable" in said
    assert "1 without caption" in said
    assert "/models/flux is not on this machine" in said
