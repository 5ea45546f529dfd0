"""The pod of one rank. All ranks' specs are alike but for name, hostname, rank label and environment.

Gang schedulers and quota systems compare shapes, so nothing here may depend on the rank beyond those; what they want to
see is in the grouping. A job that brings its own trainer has the agent brought into its image (custom.py). The job's own
pod.patch is merged over the whole spec at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock_api.contract.environment import POD_IP, Variable, pod_environment
from oarlock_api.contract.names import (
    AVOIDED_ANNOTATION,
    JOB_FILE_ANNOTATION,
    MADE_FROM_ANNOTATION,
    Label,
    host_name,
    pod_name,
    service_name,
)
from oarlock_api.contract.node_affinity import kept_off
from oarlock_api.history import AvoidedNode
from oarlock_api.pod_patch import TRAINER_CONTAINER
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.manifests import custom
from oarlock_operator.manifests.affinity import affinity
from oarlock_operator.manifests.config import output_directory, secret_references
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.manifests.patch import patched
from oarlock_operator.manifests.service import needs_service
from oarlock_operator.manifests.volumes import mounts, volumes
from oarlock_operator.model.observation import Job

CONTAINER = TRAINER_CONTAINER
USER = 1000
"""Unprivileged and the first user of most NFS servers; spec.pod.securityContext overrides it."""
UNREACHABLE_SECONDS = 30
"""How long a pod stays on a node that the cluster lost: Kubernetes' default of 300 s would idle the other nodes."""


def pod(
    job: Job,
    spec: TrainingJobSpec,
    *,
    attempt: int,
    rank: int,
    image: str,
    told: str = "",
    agent_image: str = "",
    cluster_id: str = "",
    history: str = "",
    settings: str = "",
    backoff: str = "",
    key_secret: str = "",
    avoided: Sequence[AvoidedNode] = (),
    grouping: Grouping | None = None,
    incarnation: int = 1,
    follows_the_dead: bool = False,
    surge: bool = False,
    replaces_pods: bool = False,
    made_from: str = "",
) -> dict[str, Any]:
    """The pod of `rank` in `attempt`, off the avoided nodes. `agent_image`: whose agent runs in a job of spec.custom.

    `told` is the attempt's job.json, `cluster_id` what the output's fence names the cluster by, `history` and `settings` what
    rank 0 is told to keep: of earlier attempts, and of the spec. `backoff`: how long rounds wait. `key_secret` is the Secret
    with the gang's key, `grouping` how a gang system knows the pod: not needed where only its shape counts.

    Where lost pods are made anew one by one (`replaces_pods`), `made_from` tells which fit together, and `follows_the_dead`
    that nothing of the pod before this `incarnation` runs any more; `surge`, that it still trains.
    """
    scheduling = spec.scheduling
    grouping = grouping or Grouping(scheduler_name=scheduling.scheduler_name, near=scheduling.topology)
    told_by = {JOB_FILE_ANNOTATION: told} if told else {}
    if made_from:
        told_by[MADE_FROM_ANNOTATION] = made_from
    own_labels = {Label.ATTEMPT.value: str(attempt), Label.RANK.value: str(rank)}
    if incarnation > 1:
        own_labels[Label.INCARNATION.value] = str(incarnation)
    finished = _patched(
        spec,
        _pod_spec(
            job,
            spec,
            attempt=attempt,
            rank=rank,
            image=image,
            agent_image=agent_image,
            variables=_told(rank=rank, cluster_id=cluster_id, history=history, settings=settings, backoff=backoff)
            | _of_replaced(incarnation, follows_the_dead=follows_the_dead, surge=surge, replaces_pods=replaces_pods),
            key_secret=key_secret,
            avoided=avoided,
            grouping=grouping,
        ),
    )
    # The job's own patch has the last word in it.
    if avoided and (off := kept_off(finished.get("affinity") or {}) & {node.name for node in avoided}):
        told_by[AVOIDED_ANNOTATION] = ",".join(sorted(off))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(job.name, attempt, rank, incarnation),
            "namespace": job.namespace,
            "labels": {**spec.pod.labels, **grouping.labels, **job_labels(job), **own_labels},
            "annotations": {**spec.pod.annotations, **grouping.annotations, **told_by},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": finished,
    }


def _patched(spec: TrainingJobSpec, finished: dict[str, Any]) -> dict[str, Any]:
    if spec.pod.patch is None:
        return finished
    result: dict[str, Any] = patched(finished, spec.pod.patch.as_given())
    return result


def _pod_spec(
    job: Job,
    spec: TrainingJobSpec,
    *,
    attempt: int,
    rank: int,
    image: str,
    agent_image: str,
    variables: dict[str, str],
    key_secret: str,
    avoided: Sequence[AvoidedNode],
    grouping: Grouping,
) -> dict[str, Any]:
    return _present(
        {
            **(
                {"hostname": host_name(job.name, rank), "subdomain": service_name(job.name)}
                if needs_service(spec)
                else {}
            ),
            "hostNetwork": spec.pod.host_network or None,
            # Without it a pod in the node's network asks the node's DNS, which knows no rank.
            "dnsPolicy": "ClusterFirstWithHostNet" if spec.pod.host_network else None,
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": spec.pod.service_account_name is not None,
            "serviceAccountName": spec.pod.service_account_name,
            "runtimeClassName": spec.pod.runtime_class_name,
            "imagePullSecrets": [secret.to_manifest() for secret in spec.pod.image_pull_secrets],
            "priorityClassName": spec.scheduling.priority_class_name,
            "schedulerName": grouping.scheduler_name,
            "schedulingGroup": grouping.scheduling_group,
            "nodeSelector": dict(spec.scheduling.node_selector),
            "tolerations": [*_unreachable_tolerations(), *spec.scheduling.tolerations],
            "affinity": affinity(job, spec, attempt=attempt, avoided=avoided, near=grouping.near),
            # With none at all, a pod would be gone from the API while its processes still run.
            "terminationGracePeriodSeconds": max(1, spec.pod.termination_grace_period_seconds),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
                **(spec.pod.security_context or {}),
            },
            "initContainers": _init_containers(spec, agent_image),
            "containers": [_container(job, spec, attempt=attempt, rank=rank, image=image, variables=variables)],
            "volumes": volumes(spec, key_secret=key_secret),
        }
    )


def _init_containers(spec: TrainingJobSpec, agent_image: str) -> list[dict[str, Any]]:
    if spec.custom is None:
        return []
    return [custom.bringing_the_agent(spec, image=agent_image, security_context=_hardened(read_only_root=True))]


def _hardened(*, read_only_root: bool) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only_root,
    }


def _container(
    job: Job, spec: TrainingJobSpec, *, attempt: int, rank: int, image: str, variables: dict[str, str]
) -> dict[str, Any]:
    return _present(
        {
            "name": CONTAINER,
            "image": image,
            "imagePullPolicy": spec.pod.image_pull_policy,
            "command": list(custom.COMMAND) if spec.custom else ["oarlock-trainer", "agent"],
            "env": _environment(job, spec, attempt=attempt, rank=rank, variables=variables),
            "envFrom": list(spec.pod.env_from),
            "resources": _resources(spec),
            "ports": _ports(spec),
            "volumeMounts": mounts(spec),
            # The end of its log may hold what somebody else's program prints of its secrets; the agent strikes them out.
            "terminationMessagePolicy": None if spec.custom else "FallbackToLogsOnError",
            "readinessProbe": {
                "httpGet": {"path": "/healthz", "port": "status"},
                "periodSeconds": 5,
            },
            # Programs of others write where they please: caches beside their code, logs in their home.
            "securityContext": _hardened(read_only_root=spec.custom is None),
        }
    )


def _told(*, rank: int, cluster_id: str, history: str, settings: str, backoff: str) -> dict[str, str]:
    """What an image of an earlier release would refuse in job.json, and passes over as a variable."""
    of_rank_0 = {Variable.HISTORY: history, Variable.SPEC: settings, Variable.BACKOFF: backoff} if rank == 0 else {}
    return {name.value: value for name, value in ({Variable.CLUSTER: cluster_id} | of_rank_0).items() if value}


def _of_replaced(incarnation: int, *, follows_the_dead: bool, surge: bool, replaces_pods: bool) -> dict[str, str]:
    told = {
        Variable.INCARNATION.value: str(incarnation) if incarnation > 1 else "",
        Variable.FOLLOWS_THE_DEAD.value: "1" if follows_the_dead else "",
        Variable.SURGE.value: "1" if surge else "",
        Variable.REPLACES_PODS.value: "1" if replaces_pods else "",
    }
    return {name: value for name, value in told.items() if value}


def _environment(
    job: Job, spec: TrainingJobSpec, *, attempt: int, rank: int, variables: dict[str, str]
) -> list[dict[str, Any]]:
    known = pod_environment(job=job.name, attempt=attempt, rank=rank, output_directory=output_directory(job, spec))
    known |= variables
    downward: dict[str, str] = {
        Variable.POD_UID: "metadata.uid",
        Variable.NODE: "spec.nodeName",
    }
    if spec.pod.host_network:
        downward[POD_IP] = "status.podIP"
    return [
        *({"name": str(name), "value": value} for name, value in known.items()),
        *({"name": str(name), "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in downward.items()),
        *(
            {"name": name, "valueFrom": {"secretKeyRef": reference}}
            for name, reference in secret_references(spec).items()
        ),
        *(variable.to_manifest() for variable in spec.pod.env),
    ]


def _ports(spec: TrainingJobSpec) -> list[dict[str, Any]]:
    """The one that monitoring asks for by its name.

    In the node's network all are the node's ports: said, so that the scheduler brings no two jobs together.
    """
    ports = spec.pod.ports
    if not spec.pod.host_network:
        return [{"name": "status", "containerPort": ports.status}]
    named = (("rendezvous", ports.rendezvous), ("status", ports.status), ("link", ports.link))
    return [{"name": name, "containerPort": port, "hostPort": port} for name, port in named]


def _resources(spec: TrainingJobSpec) -> dict[str, Any]:
    asked = spec.pod.resources
    gpus = {spec.pod.gpu_resource: str(spec.gpus_per_node)} if spec.gpus_per_node else {}
    return _present(
        {
            "requests": {**(asked.requests or {}), **gpus},
            "limits": {**(asked.limits or {}), **gpus},
            "claims": list(asked.claims),
        }
    )


def _unreachable_tolerations() -> list[dict[str, Any]]:
    return [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": UNREACHABLE_SECONDS,
        }
        for state in ("not-ready", "unreachable")
    ]


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what is absent or empty, so that a manifest holds only what is meant."""
    return {key: value for key, value in fields.items() if value not in (None, {}, [])}
