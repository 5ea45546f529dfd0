"""What the importer writes passes the checks of `plan`, or the import names what to change."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from oarlock_trainer.cli import main
from oarlock_trainer.plan.support import refuse_unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Imported

SEED = Path(__file__).parent / "seed"
DEEPSPEED = (SEED / "deepspeed.yaml").read_text()
COMPILE = (SEED / "compile.yaml").read_text()
BASE = (SEED / "default_config.yaml").read_text()
WITHOUT_STRATEGY = BASE.replace("distributed_type: MULTI_GPU\n", "")
WITHOUT_DYNAMO = "dynamo_config:\n  dynamo_backend: NO\n"


@pytest.mark.parametrize(
    ("accelerate", "method", "said"),
    [
        (BASE, "lora", "chosen        DDP"),
        (WITHOUT_STRATEGY + DEEPSPEED, "full", "chosen        ZeRO stage 1"),
        (WITHOUT_STRATEGY.replace(WITHOUT_DYNAMO, "") + DEEPSPEED + COMPILE, "full", "chosen        ZeRO stage 1"),
        (BASE.replace(WITHOUT_DYNAMO, "") + COMPILE, "lora", "chosen        DDP"),
    ],
    ids=["as it stands", "DeepSpeed", "DeepSpeed and compile", "compile"],
)
def test_each_block_of_the_guide_becomes_a_job_that_plan_takes(
    *,
    accelerate: str,
    method: str,
    said: str,
    tmp_path: Path,
    full_rank: dict[str, Any],
    folder: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "config"
    pictures = tmp_path / "output/data/boats"
    config.mkdir()
    pictures.mkdir(parents=True)
    for name in ("one", "two"):
        Image.new("RGB", (1024, 1024)).save(pictures / f"{name}.png")
        (pictures / f"{name}.txt").write_text("a boat")
    options = full_rank | json.loads((SEED / "config.json").read_text()) | {"--model_type": method}
    (config / "config.json").write_text(json.dumps(options))
    (config / "multidatabackend.json").write_text(json.dumps([folder]))
    (config / "accelerate.yaml").write_text(accelerate)
    shutil.copy(SEED / "webhooks.json", config)
    job = tmp_path / "job.yaml"
    arguments = ["--accelerate", str(config / "accelerate.yaml"), "-o", str(job)]
    assert main(["import-simpletuner", str(config / "config.json"), *arguments]) == 0, capsys.readouterr().err
    assert main(["plan", "-f", str(job), "--path", f"/output/data={tmp_path / 'output/data'}"]) == 0, (
        capsys.readouterr().err
    )
    told = capsys.readouterr().out
    assert said in told
    assert "does not fit" not in told


def test_compiled_blocks_with_sharded_weights_are_refused_by_what_was_written(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    file = {"deepspeed_config": {"zero_stage": 3}, "dynamo_config": {"dynamo_backend": "INDUCTOR"}}
    job = imported(simple, folder, accelerate=file)
    assert "write NO, or zero_stage 1 or 2" in job.refused["dynamo_backend"]
    assert not job.text
    assert imported(simple, folder, accelerate=file | {"dynamo_config": {}}).text


def test_a_job_that_the_trainer_refuses_is_refused_by_the_import(
    imported: Callable[..., Imported], simple: dict[str, Any], folder: dict[str, Any]
) -> None:
    job = imported(simple | {"adam_epsilon": 2}, folder, accelerate={"deepspeed_config": {"zero_stage": 1}})
    assert "it became spec.training.optimizer.options.eps" in job.refused["adam_epsilon"]


@pytest.mark.parametrize(
    ("stage", "optimizer", "offload", "backend"),
    list(itertools.product((1, 2, 3), ("AdamW", "Lion"), ("none", "cpu"), ("NO", "INDUCTOR"))),
)
def test_whatever_deepspeed_is_asked_for_no_job_is_written_that_the_trainer_refuses(
    *,
    stage: int,
    optimizer: str,
    offload: str,
    backend: str,
    imported: Callable[..., Imported],
    simple: dict[str, Any],
    folder: dict[str, Any],
) -> None:
    file = {
        "deepspeed_config": {
            "zero_stage": stage,
            "offload_optimizer_device": offload,
            "optimizer": {"type": optimizer},
        },
        "dynamo_config": {"dynamo_backend": backend},
    }
    job = imported(simple, folder, accelerate=file)
    assert bool(job.text) != bool(job.refused)
    if job.text:
        assert job.job.spec.training
        refuse_unsupported(job.job.spec.training)
