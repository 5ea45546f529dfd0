"""Vouching: whether the program that wrote a job's reports is one that the site vouches for.

A report comes from inside the pod, so it is worth what the program there is worth. The image's name says which program that
is only as long as the pod runs it as it is: who mounts something over it, loads something into it, or gives its container
another command, has chosen another program (pod_program.py). A RuntimeClass is an administrator's, and left alone.
"""

from __future__ import annotations

from oarlock_operator.model.observation import Program


def unvouched(program: Program, *, custom: bool, trainer_image: str, named: tuple[str, ...]) -> str:
    """Why reports of a pod are only claims, empty where the site vouches for what runs in it.

    `custom`: the job brings its own program. `trainer_image` is the release's own, `named` the others that count.
    """
    image, *bringing = program.images or ("",)
    if not any(_is_named(image, one) for one in named):
        if custom or program.own:
            return "spec.custom runs a program of its own, and CORDON_IMAGES does not name its image"
        if image != trainer_image:
            return "its image is not the operator's trainer image, and CORDON_IMAGES does not name it"
    for other in bringing:
        if other != trainer_image and not any(_is_named(other, one) for one in named):
            return "its agent comes from another image than the operator's trainer image"
    return program.altered


def _is_named(image: str, named: str) -> bool:
    """Whether an image begins with what was named, up to where a part of its name ends: no look-alike does."""
    if named.endswith("/") or image == named:
        return image.startswith(named)
    # A name without a slash is a registry's: with a tag behind it, it is an image of Docker Hub.
    return image.startswith((f"{named}/", f"{named}:", f"{named}@") if "/" in named else f"{named}/")
