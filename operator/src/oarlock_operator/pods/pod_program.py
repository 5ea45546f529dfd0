"""What runs in a pod, read from the pod itself: which images, and what in it could bring other code into their programs.

The job's spec would not do: a pod may be patched, or made by somebody else under the name that the operator would give it.
What is known to change no program is listed; all else counts as a change, so that a new field of the pod API does, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import msgspec

from oarlock_api.contract.environment import POD_IP, RESERVED, RUN_DIRECTORY, SIMULATE_GPUS, TERMINATION_LOG, Variable
from oarlock_api.contract.gang_key import KEY_FIELD
from oarlock_api.contract.names import AVOIDED_ANNOTATION, JOB_FILE_ANNOTATION, MADE_FROM_ANNOTATION
from oarlock_api.contract.rounds import InPlace
from oarlock_api.contract.secrets import is_secret_variable
from oarlock_api.pod_patch import TRAINER_CONTAINER
from oarlock_operator.manifests.custom import COMMAND, INIT_CONTAINER
from oarlock_operator.manifests.volumes import CONFIG, RUN, SHARED_MEMORY, TEMPORARY
from oarlock_operator.model.observation import Program

_COMMANDS = {TRAINER_CONTAINER: (["oarlock-trainer", "agent"], COMMAND)}
_BRINGS = {INIT_CONTAINER: (["oarlock-trainer", "export-agent", RUN_DIRECTORY],)}
_FIELDS = {
    *("name", "image", "imagePullPolicy", "command", "env", "resources", "resizePolicy", "ports", "volumeMounts"),
    *("readinessProbe", "securityContext", "terminationMessagePath", "terminationMessagePolicy"),
}
"""What may be said of a container; command, env, volumeMounts, readinessProbe and terminationMessagePath are looked at."""
_PLACES = {CONFIG: "/etc/oarlock", RUN: RUN_DIRECTORY, SHARED_MEMORY: "/dev/shm", TEMPORARY: "/tmp"}  # noqa: S108
_EMPTY = {RUN, SHARED_MEMORY, TEMPORARY}
_LOADED_FROM = tuple(
    PurePosixPath(folder)
    for folder in (
        *("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr"),
        # /tmp is the trainer's HOME: settings and compiled kernels are loaded from there. The agent lives on the rest.
        *("/tmp", "/dev", "/proc", "/sys", RUN_DIRECTORY, f"/var{RUN_DIRECTORY}"),  # noqa: S108
    )
)
"""Where programs of an image are, and load from."""

_OF_OARLOCK = (RESERVED - {Variable.CONFIG}) | {POD_IP, SIMULATE_GPUS}
_EVERYDAY = """
CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE
OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS TOKENIZERS_PARALLELISM
PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TORCH_LOGS TORCH_CPP_LOG_LEVEL TORCH_DISTRIBUTED_DEBUG
TORCH_SHOW_CPP_STACKTRACES GLOO_SOCKET_IFNAME FI_PROVIDER FI_EFA_USE_DEVICE_RDMA FI_EFA_FORK_SAFE FI_LOG_LEVEL
PYTHONUNBUFFERED PYTHONFAULTHANDLER PYTHONHASHSEED TZ LANG LANGUAGE ACCELERATE_CONFIG_PATH ACCELERATE_EXTRA_ARGS
HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
HF_HOME HF_TOKEN HF_ENDPOINT HF_DEBUG HF_XET_HIGH_PERFORMANCE TRANSFORMERS_VERBOSITY DIFFUSERS_VERBOSITY
WANDB_API_KEY WANDB_BASE_URL WANDB_ENTITY WANDB_PROJECT WANDB_MODE WANDB_NAME WANDB_RUN_GROUP WANDB_RUN_ID WANDB_TAGS
WANDB_NOTES WANDB_SILENT WANDB_DISABLED
MLFLOW_TRACKING_URI MLFLOW_TRACKING_TOKEN MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
MLFLOW_EXPERIMENT_NAME MLFLOW_EXPERIMENT_ID MLFLOW_RUN_ID MLFLOW_S3_ENDPOINT_URL
AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL
AWS_ENDPOINT_URL_S3 AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_WEB_IDENTITY_TOKEN_FILE AWS_STS_REGIONAL_ENDPOINTS
AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE AWS_MAX_ATTEMPTS AWS_RETRY_MODE
S3_ENDPOINT S3_ENDPOINT_URL S3_REGION S3_USE_HTTPS S3_VERIFY_SSL
"""
"""What people set, and what loads no code. No files of settings: AWS_CONFIG_FILE may name a program to run."""
_HARMLESS = frozenset(_EVERYDAY.split())
_AT_HOME = {"name": "HOME", "value": "/tmp"}  # noqa: S108
"""As the trainer's image has it; images of others have to be told."""
_HARMLESS_BEGINNINGS = ("NCCL_", "TORCH_NCCL_", "HF_HUB_", "HF_DATASETS_", "LC_")
_MOST_AVOIDED = 64 * 254
"""Characters of the names of avoided nodes: a job avoids 64 at most."""
_LOADING = ("PLUGIN", "CONF", "LIB", "MODULES", "PROFILER", "TRUST")
"""What a name with such a beginning must not hold: it names a library, a file of settings, or code of others."""


class Annotations(msgspec.Struct, frozen=True):
    """Of a pod's annotations only what it avoids and is made from, and of job.json two things.

    Whether it names a program of the job's own, and whether ranks start anew in the pod while it lives.
    """

    job_file: str | None = msgspec.field(default=None, name=JOB_FILE_ANNOTATION)
    own_program: bool = msgspec.field(default=True, name="own program")
    """Not of the wire: no annotation's name has a space."""
    in_place: bool = msgspec.field(default=False, name="in place")
    """Not of the wire."""
    avoided_names: str | None = msgspec.field(default=None, name=AVOIDED_ANNOTATION)
    avoided: frozenset[str] = msgspec.field(default=frozenset(), name="avoided nodes")
    """Not of the wire."""
    made_from: str | None = msgspec.field(default=None, name=MADE_FROM_ANNOTATION)

    def __post_init__(self) -> None:
        """Keep no more than that."""
        if self.job_file is not None:
            own_program, in_place = _read(self.job_file)
            msgspec.structs.force_setattr(self, "own_program", own_program)
            msgspec.structs.force_setattr(self, "in_place", in_place)
            msgspec.structs.force_setattr(self, "job_file", None)
        if self.avoided_names is not None:
            names = self.avoided_names[:_MOST_AVOIDED].split(",")
            msgspec.structs.force_setattr(self, "avoided", frozenset(name for name in names if name))
            msgspec.structs.force_setattr(self, "avoided_names", None)


class _JobFile(msgspec.Struct):
    custom: Any = None
    recovery: Any = None


def _read(job_file: str) -> tuple[bool, bool]:
    """Whether it names a program of its own, and whether ranks start anew in place."""
    try:
        read = msgspec.json.decode(job_file, type=_JobFile)
    except msgspec.MsgspecError:
        return True, False
    in_place = isinstance(read.recovery, dict) and read.recovery.get("inPlace") == InPlace.AUTO
    return read.custom is not None, in_place


def read_program(
    containers: Sequence[dict[str, Any]],
    *,
    before: Sequence[dict[str, Any]] = (),
    volumes: Sequence[dict[str, Any]] = (),
    shared: bool = False,
) -> Program:
    """What runs in a pod with these containers and init containers. `shared`: it sees processes of other containers."""
    said = [
        *(_altered(one, _COMMANDS) for one in containers),
        *(_altered(one, _BRINGS) for one in before),
        *(_replaced(one) for one in volumes),
        "it shares its processes with others" if shared else "",
    ]
    images = tuple(str(one.get("image", ""))[:512] for one in (*containers, *before)[:2])
    return Program(images=images, altered=next(filter(None, said), "")[:512], keyed=mounts_key(volumes))


def mounts_key(volumes: Sequence[dict[str, Any]]) -> bool:
    """Whether a pod with these volumes has its gang's key."""
    return any("secret" in source for one in volumes if one.get("name") == CONFIG for source in _sources(one))


def _altered(container: dict[str, Any], commands: dict[str, Any]) -> str:
    """By what a container runs another program than its image's, empty where by nothing."""
    name = str(container.get("name"))
    if name not in commands:
        return f"another program runs in the pod (container {name})"
    if container.get("command") not in commands[name] or container.get("args"):
        return f"container {name} does not run Oarlock's command"
    if more := {field for field, value in container.items() if value} - _FIELDS:
        return f"container {name} has {min(more)}, by which the image's program may be another one"
    if (container.get("readinessProbe") or {}).get("exec"):
        return f"container {name} runs a program as its readinessProbe"
    elsewhere = container.get("terminationMessagePath", TERMINATION_LOG) != TERMINATION_LOG
    return f"container {name} has its last words elsewhere" if elsewhere else _loads_more(container)


def _loads_more(container: dict[str, Any]) -> str:
    """By which variable or mount its program may load other code."""
    for variable in container.get("env") or ():
        if variable != _AT_HOME and not _is_harmless(variable["name"]):
            return (
                f"{variable['name']} is none of the variables that are known to load no code into the image's program"
            )
    for mount in container.get("volumeMounts") or ():
        if _PLACES.get(mount["name"]) != mount["mountPath"] and _covers(mount["mountPath"]):
            return f"a volume is mounted at {mount['mountPath']}, where the image's program is or loads from"
    return ""


@lru_cache(maxsize=1024)
def _is_harmless(variable: str) -> bool:
    if variable in _OF_OARLOCK or variable in _HARMLESS or is_secret_variable(variable):
        return True
    return variable.startswith(_HARMLESS_BEGINNINGS) and not any(word in variable for word in _LOADING)


@lru_cache(maxsize=1024)
def _covers(mount_path: str) -> bool:
    """Whether a mount is at, below or above a folder that programs are loaded from."""
    path = PurePosixPath(posixpath.normpath("/" + mount_path.lstrip("/")))
    return any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in _LOADED_FROM)


def _replaced(volume: dict[str, Any]) -> str:
    """Whether a volume of Oarlock's own name is another one, in words."""
    name = volume.get("name")
    if name in _EMPTY and "emptyDir" not in volume:
        return f"the volume {name} is not the empty one that Oarlock makes"
    sources = _sources(volume)
    if name == CONFIG and not (sources and all(_is_told(source) for source in sources)):
        return f"the volume {name} does not hold what Oarlock tells the pod"
    return ""


def _sources(volume: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return (volume.get("projected") or {}).get("sources") or ()


def _is_told(source: dict[str, Any]) -> bool:
    items = [item for kind in source.values() for item in (kind or {}).get("items") or ()]
    if "secret" in source:
        return bool(items) and all(item.get("path") == KEY_FIELD for item in items)
    field = f"metadata.annotations['{JOB_FILE_ANNOTATION}']"
    return set(source) == {"downwardAPI"} and all(
        (item.get("fieldRef") or {}).get("fieldPath") == field for item in items
    )
