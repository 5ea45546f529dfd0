"""The process that the ranks are forked from."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import json, os, sys
from oarlock_trainer import warm
warm.import_everything(encoders={encoders})
import torch
print(json.dumps({{
    "threads": len(os.listdir("/proc/self/task")),
    "cuda": torch.cuda.is_initialized(),
    "group": torch.distributed.is_initialized(),
    "modules": sorted(sys.modules),
}}))
"""


def warmed(*, encoders: bool) -> dict[str, object]:
    program = _PROGRAM.format(encoders=encoders)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_warm_process_can_be_forked_safely_and_has_what_encoding_ranks_import() -> None:
    found = warmed(encoders=True)
    assert (found["threads"], found["cuda"], found["group"]) == (1, False, False)
    modules = found["modules"]
    assert isinstance(modules, list)
    assert {
        "oarlock_trainer.train",
        "deepspeed",
        "pyarrow.parquet",
        "diffusers.models.transformers.transformer_flux",
        "transformers.models.t5.modeling_t5",
    } <= set(modules)


def test_without_encoders_neither_transformers_nor_the_compiler_cost_time() -> None:
    found = warmed(encoders=False)
    assert (found["threads"], found["cuda"], found["group"]) == (1, False, False)
    modules = found["modules"]
    assert isinstance(modules, list)
    assert "diffusers.models.transformers.transformer_flux" in modules
    assert not {"transformers", "torch._dynamo.eval_frame", "sympy"} & set(modules)
