"""A container whose program is not in its image: no restart helps, and only the runtime's words tell of it.

runc and crun look the program up when they start the container, and say so in a sentence of their own; a shell in between
ends with 127. Other reasons for which a container does not start (a driver's hook, a full disk) are the node's. So are the
node's own programs (a runtime, systemd-run), of which the same is said: what was to start stands before it.
"""

from __future__ import annotations

import re

_NOT_THERE = re.compile(
    r"(?:unable to start container process|error during container init|starting container process caused): "
    r'exec: \\?"(?P<runc>[^"\\]{1,256})\\?": (?:executable file not found|stat [^:]+: no such file|permission denied)'
    r"|executable file [`'](?P<crun>[^`']{1,256})[`'] not found"
)
COMMAND_NOT_FOUND = 127
"""What shells end with; where the agent runs, it has its own words for what it started. And Docker, for hooks too."""
_OWN = "oarlock-trainer"
_REMEDIES = {
    _OWN: "spec.pod.image has to be the trainer image of the operator's release, or one that is built on it; a program of "
    "your own goes into spec.custom",
    "python3": "the agent of a job of spec.custom needs a Python of 3.10 or newer as python3 on the PATH of spec.pod.image",
}
_BROUGHT = "the operator's trainer image (TRAINER_IMAGE, trainerImage of the chart) has to be that of its release"


def missing_program(said: str) -> str:
    """The program that a runtime's words say is not in the image, empty where they say something else."""
    found = _NOT_THERE.search(said)
    return (found["runc"] or found["crun"]) if found else ""


def remedy(program: str, *, initial: bool) -> str:
    """What mends it, as a sentence's end; `initial`: it is an init container's."""
    if initial and program == _OWN:
        return _BROUGHT
    return _REMEDIES.get(program, "build an image that has it on its PATH")
