"""What is different in the pods of a job that brings its own trainer (spec.custom): where the agent comes from.

The job's image holds nothing of Oarlock. An init container of the operator's own trainer image writes the agent, one
file, into the run directory, and the image's Python runs it as PID 1: so the agent is always of the operator's release.
Isolated and without site packages (-I -S), so that nothing that the image has installed or set gets into the agent.
"""

from __future__ import annotations

from typing import Any

from oarlock_api.contract.environment import AGENT_FILE, RUN_DIRECTORY
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests.volumes import RUN

INIT_CONTAINER = "oarlock-agent"
COMMAND = ["python3", "-I", "-S", f"{RUN_DIRECTORY}/{AGENT_FILE}"]
"""The agent in an image that has nothing but a Python of its own."""


def bringing_the_agent(spec: TrainingJobSpec, *, image: str, security_context: dict[str, Any]) -> dict[str, Any]:
    """The init container, which is done within a second.

    It asks for what the trainer's container asks for: a quota may want every container to say, and one that says nothing
    would take the pod out of the class Guaranteed. It adds nothing, because both never run at once.
    """
    asked = spec.pod.resources
    resources = {"requests": asked.requests or {}, "limits": asked.limits or {}}
    container = {
        "name": INIT_CONTAINER,
        "image": image,
        "command": ["oarlock-trainer", "export-agent", RUN_DIRECTORY],
        "resources": {kind: dict(amounts) for kind, amounts in resources.items() if amounts},
        "volumeMounts": [{"name": RUN, "mountPath": RUN_DIRECTORY}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security_context,
    }
    return {key: value for key, value in container.items() if value}
