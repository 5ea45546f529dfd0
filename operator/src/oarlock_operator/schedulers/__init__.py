"""Gang systems: which one places a job's pods together, and what it wants to see for that.

One file per system. Each is a pure function from an attempt to the object that makes it a gang and to what the pods
carry, alike on every rank. `chosen` decides Auto by what the cluster serves; the choice is frozen in status.resolved.
"""

from __future__ import annotations

from dataclasses import replace

from oarlock_api.contract.rounds import InPlace
from oarlock_api.scheduling import Gang, Scheduling
from oarlock_api.spec import TrainingJobSpec
from oarlock_api.status import Resolved
from oarlock_operator.manifests.grouping import Grouping
from oarlock_operator.model.observation import GangSystems, Job
from oarlock_operator.schedulers import coscheduling, kai, kueue, native, none, volcano
from oarlock_operator.schedulers.system import GangRequest, System

SYSTEMS: dict[Gang, System] = {
    Gang.NONE: none.SYSTEM,
    Gang.KUEUE: kueue.SYSTEM,
    Gang.VOLCANO: volcano.SYSTEM,
    Gang.COSCHEDULING: coscheduling.SYSTEM,
    Gang.KAI: kai.SYSTEM,
    Gang.NATIVE: native.SYSTEM,
}
DEFAULT_SCHEDULER = "default-scheduler"


def chosen(scheduling: Scheduling, systems: GangSystems) -> Gang:
    """The gang system of a job: its own choice, else what the cluster has.

    A scheduler's name is never guessed. KAI is never chosen: it places nothing without a queue, and a queue without a
    system named is Kueue's.
    """
    if scheduling.gang is not Gang.AUTO:
        return scheduling.gang
    if scheduling.queue:
        return Gang.KUEUE
    candidates = {
        None: (Gang.VOLCANO, Gang.NATIVE),
        DEFAULT_SCHEDULER: (Gang.NATIVE,),
        volcano.SYSTEM.scheduler: (Gang.VOLCANO,),
        kai.SYSTEM.scheduler: (),
    }.get(scheduling.scheduler_name, (Gang.COSCHEDULING,))
    return next((gang for gang in candidates if gang in systems.apis), Gang.NONE)


def unavailable(scheduling: Scheduling, systems: GangSystems) -> str:
    """Why the job cannot have its gang system here, with what to do; empty where it can."""
    gang = chosen(scheduling, systems)
    system = SYSTEMS[gang]
    if not system.apis or gang in systems.apis:
        return ""
    group = system.apis[0].partition("/")[0]
    if gang in systems.forbidden:
        return (
            f"the operator may not create {system.resource} of {group}: set gang.{gang.lower()} in the chart's values, or "
            "scheduling.gang: None"
        )
    queue = f" (scheduling.queue is set: {scheduling.queue})" if scheduling.gang is Gang.AUTO else ""
    return (
        f"the cluster does not serve {system.resource} of {' or '.join(system.apis)}: install {gang}{queue}, or choose "
        "another scheduling.gang"
    )


def other_queue(job: Job, scheduling: Scheduling) -> str:
    """What to do where the job's own label names a Kueue queue that its pods would not go to; empty where it does not."""
    label = job.labels.get(kueue.QUEUE)
    if label is None or (label == scheduling.queue and scheduling.gang in (Gang.AUTO, Gang.KUEUE)):
        return ""
    return (
        f"the label {kueue.QUEUE} of the job says {label}, and the pods would not go there: remove the label, and set "
        f"scheduling.gang: Kueue and scheduling.queue: {label} if that is what is meant"
    )


def may_surge(spec: TrainingJobSpec, resolved: Resolved | None) -> bool:
    """Whether the next pod of one that is asked to go may be made while that one trains. With spares one is there already."""
    anew = spec.recovery.in_place is InPlace.AUTO and spec.nodes > 1
    return anew and not spec.spares and spec.custom is None and system_of(resolved).surges


def system_of(resolved: Resolved | None) -> System:
    """The gang system that a job was started with."""
    return SYSTEMS[Gang(resolved.gang)] if resolved and resolved.gang else none.SYSTEM


def grouping(request: GangRequest, resolved: Resolved | None) -> Grouping:
    """What makes an attempt a gang of the system that its job was started with."""
    name = (resolved.scheduler_name if resolved else None) or request.spec.scheduling.scheduler_name
    return replace(system_of(resolved).grouping(request), scheduler_name=name)
