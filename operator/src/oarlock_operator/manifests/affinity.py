"""Where the pods of a gang may run: the user's affinity, one pod per node, and off the avoided nodes.

The same on every rank. It needs no right on nodes: the scheduler knows their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oarlock_api.contract.names import Label
from oarlock_api.history import AvoidedNode
from oarlock_api.spec import TrainingJobSpec
from oarlock_operator.observation import Job

GPUS_OF_A_WHOLE_NODE = 8
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(job: Job, spec: TrainingJobSpec, *, attempt: int, avoided: Sequence[AvoidedNode]) -> dict[str, Any]:
    """The pods' affinity; empty where nobody asks for any."""
    wanted = dict(spec.scheduling.affinity or {})
    wanted = _off_avoided_nodes(wanted, avoided)
    if spec.gpus_per_node < GPUS_OF_A_WHOLE_NODE and spec.nodes > 1:
        # Where a pod does not take a node's every GPU, nothing else keeps two of them apart.
        wanted = _one_pod_per_node(wanted, job, attempt)
    return wanted


def _one_pod_per_node(wanted: dict[str, Any], job: Job, attempt: int) -> dict[str, Any]:
    apart = dict(wanted.get("podAntiAffinity") or {})
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {Label.JOB_UID.value: job.uid, Label.ATTEMPT.value: str(attempt)}},
    }
    apart[_REQUIRED] = [*(apart.get(_REQUIRED) or []), term]
    return {**wanted, "podAntiAffinity": apart}


def _off_avoided_nodes(wanted: dict[str, Any], avoided: Sequence[AvoidedNode]) -> dict[str, Any]:
    """Strict entries are ANDed into every term of the user's (terms are ORed); others only weigh."""
    near = dict(wanted.get("nodeAffinity") or {})
    if strict := [_not_on(node.name) for node in avoided if node.strict]:
        terms = (near.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        kept = [{**term, "matchFields": [*(term.get("matchFields") or []), *strict]} for term in terms]
        near[_REQUIRED] = {"nodeSelectorTerms": kept}
    if rather := [_not_on(node.name) for node in avoided if not node.strict]:
        preference = {"weight": 100, "preference": {"matchFields": rather}}
        near[_PREFERRED] = [*(near.get(_PREFERRED) or []), preference]
    return {**wanted, "nodeAffinity": near} if near else wanted


def _not_on(node: str) -> dict[str, Any]:
    # The API takes exactly one value for a field.
    return {"key": "metadata.name", "operator": "NotIn", "values": [node]}
