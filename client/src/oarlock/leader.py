"""What rank 0's pod of a running job tells of its run: figures of the attempt, pictures. Asked from within it, as the caller.

It takes the rights `list` of pods and `create` and `get` of pods/portforward (docs/decisions/0057). What it says comes from a
pod whose program may be anything: it is bounded, and pictures are pictures by their first bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster
from oarlock.errors import NotFoundError, NotNowError
from oarlock.parts import objects, part
from oarlock.port_forward import get
from oarlock_api.contract.environment import STATUS_PORT
from oarlock_api.contract.names import Label
from oarlock_api.contract.pictures import INDEX, MOST_INDEX, MOST_PICTURE, is_picture, kind
from oarlock_api.contract.reads import FIGURES_PATH, MAX_BODY, PICTURES_PATH, StepFigures, parse_figures_body
from oarlock_api.contract.wire import WireError, integer
from oarlock_api.pod_patch import TRAINER_CONTAINER

Admit = Callable[[int], None]
"""Is told how many bytes come, before they are read; what it raises ends the reading."""
FIGURES_SECONDS, INDEX_SECONDS, PICTURE_SECONDS = 10.0, 20.0, 60.0
"""Of one request; a picture takes the agent up to as long."""


def _any(_: int) -> None:
    """However many."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The pod of rank 0 in the newest attempt. Each method asks it anew, and raises OarlockError."""

    cluster: Cluster
    namespace: str
    pod: str
    port: int = STATUS_PORT

    def figures(self, since: int = 0) -> tuple[int, list[StepFigures]]:
        """The attempt, and its figures after a step: those of the last steps, and before them evenly spread ones."""
        body = self._get(f"{FIGURES_PATH}?since={int(since)}", MAX_BODY, FIGURES_SECONDS)
        try:
            return parse_figures_body(body.decode(errors="replace"))
        except WireError as error:
            raise NotNowError(f"{self.pod} tells no figures: {error}") from error

    def pictures(self, admit: Admit = _any) -> str:
        """The index of pictures, as it lies in the output; empty where there is none yet."""
        try:
            return self._get(f"{PICTURES_PATH}{INDEX}", MOST_INDEX, INDEX_SECONDS, admit).decode(errors="replace")
        except NotFoundError:
            return ""

    def picture(self, file: str, admit: Admit = _any) -> tuple[str, bytes]:
        """The media type and the content of a picture, by its name in the index, or as contract.pictures names it."""
        if not is_picture(file):
            raise NotFoundError(f"{file[:80]!r} is no name of a picture")
        content = self._get(f"{PICTURES_PATH}{file}", MOST_PICTURE, PICTURE_SECONDS, admit)
        media_type = kind(content)
        if media_type is None:
            raise NotFoundError(f"{file} is no picture")
        return media_type, content

    def _get(self, path: str, most: int, seconds: float, admit: Admit = _any) -> bytes:
        return get(
            self.cluster,
            path,
            namespace=self.namespace,
            pod=self.pod,
            port=self.port,
            most=most,
            seconds=seconds,
            admit=admit,
        )


def find_leader(cluster: Cluster, *, namespace: str, job: str, uid: str) -> Leader:
    """Of the job with this uid. Raises NotNowError where no such pod runs, and OarlockError.

    Labels are what whoever makes a pod writes: the pod must name the job as its controller, too. One that is being deleted
    is taken only where there is no other.
    """
    selector = f"{Label.JOB}={checked_name(job, 'job')},{Label.JOB_UID}={uid},{Label.RANK}=0"
    path = f"/api/v1/namespaces/{checked_name(namespace, 'namespace')}/pods"
    running = [
        pod
        for pod in cluster.items(path, labelSelector=selector)
        if part(pod, "status").get("phase") == "Running" and _is_of(pod, uid)
    ]
    if not running:
        raise NotNowError(f"{job} has no pod of rank 0 that runs now: what it has made lies in its output")
    newest = max(running, key=lambda pod: (not part(pod, "metadata").get("deletionTimestamp"), _attempt(pod)))
    return Leader(cluster, namespace, str(newest["metadata"]["name"]), _port(newest))


def _is_of(pod: dict[str, Any], uid: str) -> bool:
    owners = objects(part(pod, "metadata"), "ownerReferences")
    return any(owner.get("controller") is True and owner.get("uid") == uid for owner in owners)


def _attempt(pod: dict[str, Any]) -> int:
    said = str(part(part(pod, "metadata"), "labels").get(Label.ATTEMPT, ""))
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else 0


def _port(pod: dict[str, Any]) -> int:
    for container in objects(part(pod, "spec"), "containers"):
        if container.get("name") == TRAINER_CONTAINER:
            for port in objects(container, "ports"):
                number = integer(port.get("containerPort"))
                if port.get("name") == "status" and number:
                    return number
    return STATUS_PORT
