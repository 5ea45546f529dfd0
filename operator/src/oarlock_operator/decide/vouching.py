"""Vouching: whether the program that wrote a job's reports is one that the site vouches for.

A report comes from inside the pod, so it is worth what the program there is worth. The image's name says which program that
is only as long as the job runs it as it is: who mounts something over it, preloads something into it, or gives its container
another command or image, has chosen another program.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from oarlock_api.pod_patch import TRAINER_CONTAINER
from oarlock_api.spec import TrainingJobSpec

_LOADED_FROM = ("LD_", "PYTHON")
"""Beginnings of the variables by which a program is made to load other code; PATH is the third way."""
_OF_THE_IMAGE = ("/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr")
"""Where an image has its programs."""
_HARMLESS = {"name", "resources", "ports"}
"""What a patch may say of the trainer's container without changing what runs in it."""


def unvouched(spec: TrainingJobSpec, image: str, *, trainer_image: str, named: tuple[str, ...]) -> str:
    """Why reports of a job's pods are only claims, empty where the site vouches for them.

    `image` is what the pods run, `trainer_image` the release's own, `named` the others that the site vouches for.
    """
    if not any(_is_named(image, one) for one in named):
        if spec.custom:
            return "spec.custom runs a program of its own, and CORDON_IMAGES does not name its image"
        if image != trainer_image:
            return "its image is not the operator's trainer image, and CORDON_IMAGES does not name it"
    return _altered(spec)


def _altered(spec: TrainingJobSpec) -> str:
    """By which field the job changes the program that its image brings, empty where by none."""
    pod, patch = spec.pod, spec.pod.patch.as_given() if spec.pod.patch else {}
    others = {"initContainers", "shareProcessNamespace", "hostPID"} & patch.keys()
    if others or any(one.get("name") != TRAINER_CONTAINER for one in patch.get("containers", ())):
        return "pod.patch brings other programs into the pod"
    if changed := {field for one in patch.get("containers", ()) for field in one} - _HARMLESS:
        return f"pod.patch sets {min(changed)} of its container, by which the image's program may be another one"
    if pod.env_from:
        return "pod.envFrom may load other code into the image's program"
    for variable in pod.env:
        if variable.name == "PATH" or variable.name.startswith(_LOADED_FROM):
            return f"pod.env sets {variable.name}, which loads other code into the image's program"
    for mount in pod.volume_mounts:
        path = PurePosixPath(mount.mount_path)
        if any(path.is_relative_to(folder) for folder in _OF_THE_IMAGE) or path == PurePosixPath("/"):
            return f"pod.volumeMounts has {mount.mount_path}, which covers the image's own files"
    return ""


def _is_named(image: str, named: str) -> bool:
    """Whether an image begins with what was named, up to where a part of its name ends: no look-alike does."""
    if named.endswith("/") or image == named:
        return image.startswith(named)
    # A name without a slash is a registry's: with a tag behind it, it is an image of Docker Hub.
    return image.startswith((f"{named}/", f"{named}:", f"{named}@") if "/" in named else f"{named}/")
