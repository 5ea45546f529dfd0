"""Whether a pod would find room on a node: the part of the scheduler's rules that can be judged from outside, pure.

Used only to say that a gang may leave its nodes because others surely wait for it. So every doubt is a no: a rule that is
not understood here, a resource that is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from oarlock_api.quantity import amount
from oarlock_operator.manifests.pod_requests import requests
from oarlock_operator.model.node_maintenance import maintenance_of

Json = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"
_OVER = ("Succeeded", "Failed")
_NONE = Decimal(0)


def may_run_on(pod: Json, node: Json) -> bool:
    """Whether nothing but room keeps `pod` (a manifest) off `node`."""
    spec, labels = pod["spec"], node["metadata"].get("labels") or {}
    return (
        _is_ready(node)
        and not (spec.get("resourceClaims") or spec.get("runtimeClassName"))
        and maintenance_of(node) is None
        and all(labels.get(key) == value for key, value in (spec.get("nodeSelector") or {}).items())
        and _affinity_holds(spec.get("affinity") or {}, node)
        and not spec.get("topologySpreadConstraints")
        and all(
            any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or [])
            for taint in (node.get("spec") or {}).get("taints") or []
            if taint.get("effect") in ("NoSchedule", "NoExecute")
        )
    )


def _is_ready(node: Json) -> bool:
    """Whether its kubelet says that it takes pods."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any((item.get("type"), item.get("status")) == ("Ready", "True") for item in conditions)


def has_room(pod: Json, node: Json, others: Iterable[Json]) -> bool:
    """Whether `node` has what `pod` asks for beside `others`, the pods that are there."""
    try:
        return _has_room(
            pod, node, [other for other in others if (other.get("status") or {}).get("phase") not in _OVER]
        )
    except ValueError:
        # A quantity in a notation that is not read here.
        return False


def _has_room(pod: Json, node: Json, others: Sequence[Json]) -> bool:
    there: dict[str, str] = (node.get("status") or {}).get("allocatable") or {}
    used: dict[str, Decimal] = {}
    for other in others:
        for name, asked in requests(other).items():
            used[name] = used.get(name, _NONE) + asked
    return (
        len(others) < amount(there.get("pods", "0"))
        and not any(host_ports(pod) & host_ports(other) for other in others)
        and all(
            name in there and asked + used.get(name, _NONE) <= amount(there[name])
            for name, asked in requests(pod).items()
        )
    )


def host_ports(pod: Json) -> set[int]:
    """Ports of the node itself that a pod takes."""
    spec = pod["spec"]
    kind = "containerPort" if spec.get("hostNetwork") else "hostPort"
    ports = [port for container in spec.get("containers") or [] for port in container.get("ports") or []]
    return {port[kind] for port in ports if port.get(kind)}


def _affinity_holds(affinity: Json, node: Json) -> bool:
    if (affinity.get("podAffinity") or {}).get(_REQUIRED):
        return False
    apart: Sequence[Json] = (affinity.get("podAntiAffinity") or {}).get(_REQUIRED) or []
    if any(term.get("topologyKey") != _HOST for term in apart):
        return False
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED)
    return required is None or any(_term_holds(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term_holds(term: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    wanted = [(rule, labels) for rule in term.get("matchExpressions") or []]
    wanted += [(rule, fields) for rule in term.get("matchFields") or []]
    return bool(wanted) and all(_rule_holds(rule, values) for rule, values in wanted)


def _rule_holds(rule: Json, values: dict[str, str]) -> bool:
    value, listed = values.get(rule["key"]), rule.get("values") or []
    match rule.get("operator"):
        case "In":
            return value in listed
        case "NotIn":
            return value not in listed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")
