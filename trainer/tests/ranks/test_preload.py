"""The process that the ranks are forked from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pod_environment import of_pod

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
import json, os, sys
from oarlock_trainer.ranks import preload
preload.import_everything(encoders={encoders})
import torch
print(json.dumps({{
    "threads": len(os.listdir("/proc/self/task")),
    "cuda": torch.cuda.is_initialized(),
    "group": torch.distributed.is_initialized(),
    "modules": sorted(sys.modules),
}}))
"""


def warmed(*, encoders: bool, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(encoders=encoders)],
        capture_output=True, text=True, check=True, env=os.environ | environment,
    )  # fmt: skip
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_warm_process_can_be_forked_safely_and_has_what_encoding_ranks_import() -> None:
    found = warmed(encoders=True)
    assert (found["threads"], found["cuda"], found["group"]) == (1, False, False)
    modules = found["modules"]
    assert isinstance(modules, list)
    assert {
        "oarlock_trainer.loop.train",
        "deepspeed",
        "pyarrow.parquet",
        "diffusers.models.transformers.transformer_flux",
        "transformers.models.t5.modeling_t5",
    } <= set(modules)


def test_without_encoders_neither_transformers_nor_the_compiler_nor_mlflow_cost_time() -> None:
    found = warmed(encoders=False)
    assert (found["threads"], found["cuda"], found["group"]) == (1, False, False)
    modules = found["modules"]
    assert isinstance(modules, list)
    assert "diffusers.models.transformers.transformer_flux" in modules
    assert not {"transformers", "torch._dynamo.eval_frame", "sympy", "mlflow"} & set(modules)


@pytest.mark.deep
def test_for_a_job_with_adapters_it_has_what_makes_them_and_can_be_forked_safely(tmp_path: Path) -> None:
    job = {
        "version": 2, "job": "flux", "namespace": "default", "job_uid": "uid", "attempt": 1, "nodes": 1,
        "gpus_per_node": 0, "output_directory": str(tmp_path), "training": {"method": "LoRA"},
    }  # fmt: skip
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    found = warmed(encoders=False, OARLOCK_CONFIG=str(path))
    assert (found["threads"], found["cuda"], found["group"]) == (1, False, False)
    modules = found["modules"]
    assert isinstance(modules, list)
    assert "peft" in modules
    assert not {"bitsandbytes", "torchao"} & set(modules)


def test_what_was_left_out_can_be_imported_afterwards() -> None:
    hidden = "left_out('colorsys', 'json')"
    program = f"""
import importlib.metadata as metadata, json
from oarlock_trainer.runtime.left_out import left_out, unsearched
search = metadata.packages_distributions
with {hidden}, unsearched():
    assert not metadata.packages_distributions()
    import json  # imported before
    try:
        import colorsys
    except ImportError:
        print("not there")
import colorsys
assert metadata.packages_distributions is search
print(colorsys.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["not there", "colorsys"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "expandable_segments:True"),
        ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:512"}, "max_split_size_mb:512"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, None),
    ],
)
def test_a_gpus_memory_is_in_segments_that_grow_unless_the_job_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], found: str | None
) -> None:
    environment = dict(given)
    monkeypatch.setattr(os, "environ", environment)
    preload.settle_environment()
    assert environment.get("PYTORCH_ALLOC_CONF") == found


def test_ranks_of_tests_on_gpus_have_a_pods_environment_though_this_process_is_settled_for_the_cpu() -> None:
    preload.settle_environment()
    assert (os.environ["DS_ACCELERATOR"], os.environ["TORCHDYNAMO_DISABLE"]) == ("cpu", "1")
    found = of_pod(gpus=2)
    assert (found["DS_ACCELERATOR"], found.get("TORCHDYNAMO_DISABLE"), found["WORLD_SIZE"]) == ("cuda", None, "2")
