"""Whose reports are believed: those of pods that run, unchanged, a program that the site vouches for."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from jobs import job, spec
from test_decide_brakes import POOL, broken, cordons, refused
from world_writes import program_of
from worlds import World

from oarlock_operator.plan import CreatePods

CUSTOM: dict[str, Any] = {"training": None, "custom": {"command": ["true"]}}


EVERYDAY = (
    *("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_TIMEOUT", "TORCH_NCCL_BLOCKING_WAIT", "HF_HOME", "HF_HUB_OFFLINE"),
    *(
        "WANDB_API_KEY",
        "MLFLOW_TRACKING_URI",
        "AWS_REGION",
        "OMP_NUM_THREADS",
        "HTTPS_PROXY",
        "no_proxy",
        "TZ",
        "LC_ALL",
    ),
    *("TORCH_LOGS", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "OARLOCK_SIMULATE_GPUS"),
)
LOADING = (
    *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_CONF_FILE", "NVML_LIBRARY", "CC", "TRITON_CACHE_DIR", "HOME"),
    *("AWS_CONFIG_FILE", "CUDA_INJECTION64_PATH", "PATH", "PYTHONPATH", "GCONV_PATH", "ANYTHING_ELSE"),
)
DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "imagePullPolicy": "IfNotPresent",
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": "status", "scheme": "HTTP"}, "timeoutSeconds": 1},
    "args": [],
}
AS_IN_THE_EXAMPLE = {
    "image": "site/ml/x:1",
    "env": [
        {"name": "ACCELERATE_CONFIG_PATH", "value": "/run/oarlock/accelerate.yaml"},
        {"name": "ACCELERATE_EXTRA_ARGS", "value": "--use_deepspeed"},
        {"name": "HF_HOME", "value": "/output/huggingface"},
        {"name": "HOME", "value": "/tmp"},
    ],
}
PROBE = {"exec": {"command": ["sh"]}}
POST_START = {"postStart": {"exec": {"command": ["sh"]}}}
ANOTHER = {"name": "another", "image": "somebody/else:1"}


def mounting(path: str) -> dict[str, Any]:
    """A pod with a claim mounted at a path."""
    volume = {"name": "more", "persistentVolumeClaim": {"claimName": "more"}}
    return {"volumes": [volume], "volumeMounts": [{"name": "more", "mountPath": path}]}


def setting(*names: str) -> dict[str, Any]:
    """A job that sets variables."""
    return {"pod": {"env": [{"name": name, "value": "1"} for name in names]}}


def writing_to(path: str) -> dict[str, Any]:
    """An output that is mounted at a path."""
    return {"mountPath": path, "persistentVolumeClaim": {"claimName": "shared"}}


def changing(volume: str, **fields: Any) -> dict[str, Any]:
    """A patch of one of Oarlock's own volumes."""
    return {"pod": {"patch": {"volumes": [{"name": volume, **fields}]}}}


def patching(**fields: Any) -> dict[str, Any]:
    """A patch of the trainer's container."""
    return {"containers": [{"name": "trainer", **fields}]}


@pytest.mark.parametrize(
    ("changes", "images", "believed"),
    [
        pytest.param({}, (), True, id="the operator's own trainer"),
        pytest.param({"pod": {"image": "somebody/trainer:1"}}, (), False, id="another image"),
        pytest.param({"pod": {"image": "site/ml/trainer:1"}}, ("site/ml/",), True, id="one that the site vouches for"),
        pytest.param({"pod": {"image": "site/mlx:1"}}, ("site/ml/",), False, id="one that only looks like it"),
        pytest.param({"pod": {"image": "site.io/t:2"}}, ("site.io/t",), True, id="any tag of the one that is named"),
        pytest.param({"pod": {"image": "site.io/t2:1"}}, ("site.io/t",), False, id="a name that goes on"),
        pytest.param({"pod": {"image": "site.io/t:1.2"}}, ("site.io/t:1",), False, id="a tag that goes on"),
        pytest.param({"pod": {"image": "site.io/t:1"}}, ("site.io",), True, id="one of a registry"),
        pytest.param({"pod": {"image": "site.io.evil.org/t:1"}}, ("site.io",), False, id="a registry that goes on"),
        pytest.param({"pod": {"image": "site.io:1"}}, ("site.io",), False, id="what Docker Hub has under its name"),
        pytest.param({**CUSTOM, "pod": {"image": "x"}}, (), False, id="a program of the job's own"),
        pytest.param({"pod": {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}}, (), True, id="a harmless variable"),
        pytest.param({"pod": {"env": [{"name": "LD_PRELOAD", "value": "x"}]}}, (), False, id="a preloaded library"),
        pytest.param(setting(*EVERYDAY), (), True, id="the variables that people set"),
        *(pytest.param(setting(name), (), False, id=f"the variable {name}") for name in LOADING),
        pytest.param({"pod": {"envFrom": [{"configMapRef": {"name": "x"}}]}}, (), False, id="variables from elsewhere"),
        pytest.param({"pod": mounting("/data")}, (), True, id="a mount beside the program"),
        pytest.param({"pod": mounting("/opt/venv")}, (), False, id="a mount over the program"),
        pytest.param({"pod": mounting("//opt/venv")}, (), False, id="the same, written otherwise"),
        pytest.param({"pod": mounting("/data/../opt")}, (), False, id="the same, by a detour"),
        pytest.param({"pod": mounting("/var")}, (), False, id="a mount above what the agent uses"),
        pytest.param({"pod": mounting("/tmp/.config")}, (), False, id="settings in the program's home"),
        pytest.param({"pod": mounting("/dev/nothing")}, (), False, id="a mount where its last words go"),
        pytest.param({"output": writing_to("/mnt/results")}, (), True, id="an output of its own place"),
        pytest.param({"output": writing_to("/opt/oarlock")}, (), False, id="an output over the program"),
        pytest.param({"output": writing_to("/usr/lib/python3")}, (), False, id="an output below a folder of programs"),
        pytest.param({"pod": {"runtimeClassName": "nvidia"}}, (), True, id="a runtime that an administrator made"),
        pytest.param(changing("tmp", emptyDir={"sizeLimit": "1Gi"}), (), True, id="a limit of the temporary files"),
        pytest.param(changing("tmp", emptyDir=None, hostPath={"path": "/x"}), (), False, id="others' temporary files"),
        pytest.param(changing("shared-memory", emptyDir=None, hostPath={"path": "/x"}), (), False, id="others' memory"),
        pytest.param({"pod": {"patch": {"priority": 1}}}, (), True, id="a patch beside the containers"),
        pytest.param({"pod": {"patch": patching(resources={"limits": {"rdma/ib": 1}})}}, (), True, id="more devices"),
        pytest.param({"pod": {"patch": patching(lifecycle=POST_START)}}, (), False, id="a command by the patch"),
        pytest.param({"pod": {"patch": patching(readinessProbe=PROBE)}}, (), False, id="a command by its probe"),
        pytest.param({"pod": {"patch": {"hostPID": True}}}, (), False, id="processes of others"),
        pytest.param({"pod": {"patch": {"initContainers": [ANOTHER]}}}, (), False, id="a program that runs before"),
        pytest.param({"pod": {"patch": {"containers": [ANOTHER]}}}, (), False, id="a program beside it"),
        pytest.param({**CUSTOM, "pod": {"image": "trainer:test"}}, (), False, id="the same in the trainer's image"),
        pytest.param({**CUSTOM, "pod": {"image": "site/ml/x:1"}}, ("site/ml/",), True, id="one in a vouched image"),
        pytest.param({**CUSTOM, "pod": AS_IN_THE_EXAMPLE}, ("site/ml/",), True, id="one that is set up as the example"),
    ],
)
def test_a_report_is_only_a_claim_unless_the_site_vouches_for_the_program_that_wrote_it(
    changes: dict[str, Any],
    images: tuple[str, ...],
    believed: bool,  # noqa: FBT001
) -> None:
    world = World(job=job(spec=spec(**changes)), may_cordon=True, pool=POOL)
    world.defaults = replace(world.defaults, cordon_images=images)
    broken(world=world)
    if believed:
        assert cordons(world.one_pass()) == ["node-1"]
    else:
        assert "only a claim" in refused(world)


def made_otherwise(world: World, **changes: Any) -> None:
    """The pod of rank 1 runs something else than the operator would have given it."""
    plan = next(action for action in world.one_pass().actions if isinstance(action, CreatePods))
    manifest = copy.deepcopy(plan.manifests[1])
    metadata, (trainer,) = manifest["metadata"], manifest["spec"]["containers"]
    trainer |= changes.get("container", {})
    trainer["env"] += changes.get("env", [])
    metadata["annotations"] |= changes.get("annotations", {})
    manifest["spec"] |= changes.get("spec", {})
    manifest["spec"]["containers"] += changes.get("beside", [])
    volumes = changes.get("volumes", {})
    manifest["spec"]["volumes"] = [one | volumes.get(one["name"], {}) for one in manifest["spec"]["volumes"]]
    world.pods[metadata["name"]] = replace(world.pods[metadata["name"]], program=program_of(manifest))


@pytest.mark.parametrize(
    ("changes", "believed"),
    [
        pytest.param({}, True, id="as the operator makes it"),
        pytest.param({"container": DEFAULTS}, True, id="with what the API server adds"),
        pytest.param({"env": [{"name": "AWS_ROLE_ARN", "value": "x"}]}, True, id="with a cloud's role"),
        pytest.param({"container": {"image": "somebody/else:1"}}, False, id="another image"),
        pytest.param({"container": {"command": ["sh", "-c", "lie"]}}, False, id="another command"),
        pytest.param({"container": {"args": ["--help"]}}, False, id="other arguments"),
        pytest.param({"container": {"terminationMessagePath": "/output/x"}}, False, id="last words of others"),
        pytest.param({"env": [{"name": "LD_PRELOAD", "value": "x"}]}, False, id="a preloaded library"),
        pytest.param({"beside": [ANOTHER]}, False, id="a container beside it"),
        pytest.param({"spec": {"initContainers": [ANOTHER]}}, False, id="a container before it"),
        pytest.param({"spec": {"ephemeralContainers": [ANOTHER]}}, False, id="a container that came later"),
        pytest.param({"spec": {"shareProcessNamespace": True}}, False, id="processes of others"),
        pytest.param({"annotations": {"oarlock.dev/job": '{"custom": {"command": ["sh"]}}'}}, False, id="told more"),
        pytest.param({"volumes": {"oarlock-config": {"projected": {"sources": []}}}}, False, id="told by another"),
    ],
)
def test_a_pod_that_is_not_as_the_operator_makes_it_is_not_believed_whatever_the_job_says(
    changes: dict[str, Any],
    believed: bool,  # noqa: FBT001
) -> None:
    world = World(job=job(), may_cordon=True, pool=POOL)
    made_otherwise(world, **changes)
    broken(world=world)
    if believed:
        assert cordons(world.one_pass()) == ["node-1"]
    else:
        assert "only a claim" in refused(world)
