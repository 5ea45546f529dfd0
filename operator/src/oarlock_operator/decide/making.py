"""Making: the current attempt's pods as manifests, whether all of them are to be made or a lost one is made anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oarlock_api.contract.kept_spec import settings
from oarlock_api.contract.rounds import InPlace
from oarlock_api.recovery import Recovery
from oarlock_operator import schedulers
from oarlock_operator.decide.draft import Draft
from oarlock_operator.manifests.config import job_file
from oarlock_operator.manifests.gang_key import gang_key
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.manifests.history import notes
from oarlock_operator.manifests.network_policy import network_policy
from oarlock_operator.manifests.pod import pod as pod_manifest
from oarlock_operator.model.observation import Observation, Pod, gang_size
from oarlock_operator.model.plan import CreatePods
from oarlock_operator.schedulers.system import GangRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One pod that is to be made. `follows_the_dead`: nothing of the pod before it runs any more. `surge`: it trains."""

    rank: int
    incarnation: int = 1
    follows_the_dead: bool = False
    surge: bool = False


@dataclass(frozen=True, slots=True)
class Maker:
    """What makes the pods of an attempt, the object that makes them a gang, and what they need beside it."""

    pod: Callable[..., dict[str, Any]]
    group: dict[str, Any] | None
    beside: tuple[dict[str, Any], ...] = field(repr=False)


def replaces_pods(o: Observation, draft: Draft) -> bool:
    """Whether lost pods of the job's gang are made anew one by one.

    Without a key anybody who reaches rank 0's port could say that it is the next pod of a rank that lives.
    """
    in_place = o.spec.recovery.in_place is InPlace.AUTO and o.spec.nodes > 1 and bool(o.defaults.keys)
    return in_place and schedulers.system_of(draft.status.resolved).replaces_pods


def never_replaces(o: Observation, draft: Draft) -> str:
    """Why they are not, for people; empty where they are."""
    if replaces_pods(o, draft):
        return ""
    if not schedulers.system_of(draft.status.resolved).replaces_pods:
        gang = draft.status.resolved.gang if draft.status.resolved else None
        return f"the gang system {gang} does not take single pods into a gang that runs"
    return "recovery.inPlace is not Auto" if o.defaults.keys else "the operator gives gangs no keys (gangKeys.enabled)"


def spares(o: Observation, draft: Draft) -> int:
    """How many spares an attempt that begins now is to have: nobody takes another one's place where pods are not replaced."""
    return o.spec.spares if replaces_pods(o, draft) else 0


def maker(o: Observation, draft: Draft) -> Maker:
    """The maker of the current attempt's pods, from the job and the operator's settings as they are now."""
    number, grouping = draft.status.attempt, _grouping(o, draft)
    beyond = gang_size(o.spec, draft.status, number) - o.spec.nodes
    told = job_file(o.job, o.spec, number, spares=beyond, elastic=replaces_pods(o, draft))
    key = gang_key(o.job, o.defaults.keys, nodes=o.spec.nodes)
    policy = network_policy(o.job, o.spec, status_from=o.defaults.status_from)
    pod = partial(
        pod_manifest,
        o.job,
        o.spec,
        attempt=number,
        image=_image(o, draft),
        told=told.to_json(),
        agent_image=o.defaults.trainer_image,
        cluster_id=o.defaults.cluster_id,
        key_secret=key["metadata"]["name"] if key else "",
        grouping=grouping,
        replaces_pods=replaces_pods(o, draft),
    )
    return Maker(pod, grouping.group, tuple(one for one in (key, policy) if one))


def pods(o: Observation, draft: Draft, made: Maker, wanted: Sequence[Wanted], *, optional: bool = False) -> CreatePods:
    """The action that makes them."""
    history = notes(draft.status, uid=o.job.uid, image=_image(o, draft)).to_json()
    kept = settings(o.spec.to_manifest())
    source = made_from(made) if replaces_pods(o, draft) else ""
    manifests = (
        made.pod(
            rank=one.rank,
            incarnation=one.incarnation,
            follows_the_dead=one.follows_the_dead,
            surge=one.surge,
            history=history,
            settings=kept,
            backoff=_backoff(o.spec.recovery),
            avoided=draft.status.avoided_nodes,
            made_from=source,
        )
        for one in wanted
    )
    return CreatePods(tuple(manifests), beside=made.beside, optional=optional)


def fit(o: Observation, draft: Draft, pods: Iterable[Pod]) -> bool:
    """Whether a pod that is made now is made from the same as all of these were."""
    source = made_from(maker(o, draft))
    return all(pod.made_from == source for pod in pods)


def made_from(made: Maker) -> str:
    """A hash of all that pods of one gang have in common: two with the same one fit together.

    Not of the nodes that they keep off, nor of what rank 0 alone is told: of earlier attempts, and how long it waits.
    """
    return hashlib.sha256(json.dumps(made.pod(rank=0), sort_keys=True).encode()).hexdigest()[:32]


def _backoff(recovery: Recovery) -> str:
    """How long rounds wait, where it is another time than agents go by that are told of none."""
    told, usual = (
        f"{one.backoff_seconds} {one.max_backoff_seconds}" for one in (recovery, Recovery(in_place=recovery.in_place))
    )
    return told if told != usual and recovery.in_place is InPlace.AUTO else ""


def _grouping(o: Observation, draft: Draft) -> Grouping:
    number = draft.status.attempt
    size = gang_size(o.spec, draft.status, number)
    request = GangRequest(job=o.job, spec=o.spec, attempt=number, size=size, systems=o.systems)
    return schedulers.grouping(request, draft.status.resolved)


def _image(o: Observation, draft: Draft) -> str:
    return (draft.status.resolved.image if draft.status.resolved else None) or o.defaults.trainer_image
