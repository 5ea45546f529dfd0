"""The trainer's image, built from its Dockerfile: jobs on a node's processors, and its agent beside others' programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from oarlock_local import patience
from tests.e2e.jobs import Jobs
from tests.images import builder
from tests.images.conftest import TRAINER_IMAGE, Loaded

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1800)]
OFFLOAD = """
import torch
from oarlock_api.optimization import Optimizer
from oarlock_trainer.engine.optimizers import make_offloaded, make_optimizer
for name in ("AdamW", "Lion"):
    weight, plain = torch.nn.Parameter(torch.ones(1000)), torch.nn.Parameter(torch.ones(1000))
    for parameter, make in ((weight, make_offloaded), (plain, make_optimizer)):
        optimizer = make([parameter], Optimizer.model_validate({"name": name, "learningRate": 0.1}))
        for _ in range(3):
            (parameter * (1 + torch.arange(1000.0))).sum().backward()
            optimizer.step()
    torch.testing.assert_close(weight, plain)
print("the same")
"""


def test_a_job_trains_and_exports_in_the_image(jobs: Jobs, trainer_image: Loaded, tell: Callable[[str], None]) -> None:
    pod: dict[str, Any] = {"image": trainer_image.name, "runtimeClassName": None, "env": []}
    jobs.apply("real", nodes=1, gpusPerNode=0, steps=20, every=10, pod=pod)
    status = jobs.wait_for_end("real", seconds=900)
    assert (status["phase"], status["attempt"], status["progress"]["step"]) == ("Succeeded", 1, 20), status
    assert (jobs.output / status["output"]["relativePath"] / "model/model_index.json").is_file()
    stages = status["attempts"][0]["stageMilliseconds"]
    words = ", ".join(f"{name} {milliseconds / 1000:.1f} s" for name, milliseconds in stages.items())
    tell(f"{TRAINER_IMAGE}: start of a job on a processor: {words}")


def test_a_program_of_somebody_elses_image_gets_its_agent_from_the_trainers(
    jobs: Jobs, trainer_image: Loaded, operator_image: Loaded
) -> None:
    jobs.cluster.kubectl("set", "env", "-n", "oarlock", "deployment/oarlock-operator", _trainer_image(trainer_image))
    jobs.cluster.kubectl("rollout", "status", "-n", "oarlock", "deployment/oarlock-operator", patience.KUBECTL)
    program = "import pathlib; pathlib.Path('/output/foreign/mark').write_text('was here')"
    spec = {
        "nodes": 1,
        "gpusPerNode": 0,
        "output": {"persistentVolumeClaim": {"claimName": "training-output"}, "minFree": "1Mi"},
        "custom": {"command": ["python3"], "args": ["-c", program]},
        "pod": {"image": operator_image.name, "sharedMemory": "16Mi"},
    }
    job = {"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "foreign"}, "spec": spec}
    jobs.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    status = jobs.wait_for_end("foreign", seconds=600)
    assert status["phase"] == "Succeeded", status
    assert (jobs.output / "foreign/mark").read_text() == "was here"


def test_the_cpu_optimizers_are_there_without_a_compiler_having_run(shell: Callable[..., str]) -> None:
    # As on a GPU node, for which it was made: the name decides whether DeepSpeed takes it.
    made = shell("env", "DS_ACCELERATOR=cuda", "CXX=/nowhere", "CC=/nowhere", "python", "-c", OFFLOAD)
    assert made.splitlines()[-1] == "the same"
    assert shell("sh", "-c", "ls -d /tmp/.cache/torch_extensions 2>/dev/null; true") == ""


def test_what_torch_compiles_with_on_gpus_is_there(shell: Callable[..., str]) -> None:
    include = shell("python", "-c", "import sysconfig; print(sysconfig.get_path('include'))").strip()
    shell("sh", "-c", f"echo '#include <Python.h>' >/tmp/x.c && gcc -c -o /tmp/x.o -I{include} /tmp/x.c")


def test_whoever_asks_for_the_users_name_or_home_gets_an_answer(shell: Callable[..., str]) -> None:
    asked = "import getpass, pathlib, tempfile; print(getpass.getuser(), pathlib.Path.home(), tempfile.gettempdir())"
    assert shell("python", "-c", asked).split() == ["oarlock", "/tmp", "/tmp"]


def test_its_labels_tell_the_version(builder_name: str) -> None:
    labels = builder.inspect(builder_name, TRAINER_IMAGE)["Labels"]
    assert labels["org.opencontainers.image.version"] == TRAINER_IMAGE.rpartition(":")[2]


def _trainer_image(image: Loaded) -> str:
    return f"OARLOCK_OPERATOR_TRAINER_IMAGE={image.name}"
