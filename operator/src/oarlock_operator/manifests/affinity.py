"""Where the pods of a gang may run: the user's affinity, one pod per node, near each other, and off the avoided nodes.

The same on every rank. It needs no right on nodes: the scheduler knows their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock_api.contract.names import Label
from oarlock_api.contract.node_affinity import REQUIRED, not_on
from oarlock_api.history import AvoidedNode
from oarlock_api.scheduling import Topology
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.model.observation import Job

GPUS_OF_A_WHOLE_NODE = 8
HIGHEST_WEIGHT, WEIGHT_STEP = 100, 10
"""Preferences for node labels, the first the strongest: eight of them end at 30."""
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(
    job: Job, spec: TrainingJobSpec, *, attempt: int, avoided: Sequence[AvoidedNode], near: Topology
) -> dict[str, Any]:
    """The pods' affinity; empty where nobody asks for any. `near`: what no gang system sees to."""
    wanted = dict(spec.scheduling.affinity or {})
    wanted = _off_avoided_nodes(wanted, avoided)
    if spec.gpus_per_node < GPUS_OF_A_WHOLE_NODE and spec.nodes > 1:
        # Where a pod does not take a node's every GPU, nothing else keeps two of them apart.
        wanted = _one_pod_per_node(wanted, job, attempt)
    return _near_each_other(wanted, near, job, attempt)


def _one_pod_per_node(wanted: dict[str, Any], job: Job, attempt: int) -> dict[str, Any]:
    apart = dict(wanted.get("podAntiAffinity") or {})
    apart[REQUIRED] = [*(apart.get(REQUIRED) or []), _of_the_gang("kubernetes.io/hostname", job, attempt)]
    return {**wanted, "podAntiAffinity": apart}


def _near_each_other(wanted: dict[str, Any], near: Topology, job: Job, attempt: int) -> dict[str, Any]:
    together = dict(wanted.get("podAffinity") or {})
    if near.required_key:
        together[REQUIRED] = [*(together.get(REQUIRED) or []), _of_the_gang(near.required_key, job, attempt)]
    if near.preferred_keys:
        weighted = [
            {"weight": HIGHEST_WEIGHT - WEIGHT_STEP * place, "podAffinityTerm": _of_the_gang(key, job, attempt)}
            for place, key in enumerate(near.preferred_keys)
        ]
        together[_PREFERRED] = [*(together.get(_PREFERRED) or []), *weighted]
    return {**wanted, "podAffinity": together} if together else wanted


def _of_the_gang(key: str, job: Job, attempt: int) -> dict[str, Any]:
    """The pods of the same attempt, by the values of a node label."""
    labels = {Label.JOB_UID.value: job.uid, Label.ATTEMPT.value: str(attempt)}
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


def _off_avoided_nodes(wanted: dict[str, Any], avoided: Sequence[AvoidedNode]) -> dict[str, Any]:
    """Strict entries are ANDed into every term of the user's (terms are ORed); others only weigh."""
    near = dict(wanted.get("nodeAffinity") or {})
    if strict := [not_on(node.name) for node in avoided if node.strict]:
        terms = (near.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        kept = [{**term, "matchFields": [*(term.get("matchFields") or []), *strict]} for term in terms]
        near[REQUIRED] = {"nodeSelectorTerms": kept}
    if rather := [not_on(node.name) for node in avoided if not node.strict]:
        preference = {"weight": 100, "preference": {"matchFields": rather}}
        near[_PREFERRED] = [*(near.get(_PREFERRED) or []), preference]
    return {**wanted, "nodeAffinity": near} if near else wanted
