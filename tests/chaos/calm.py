"""After a storm: everything is mended, and within a minute every job has come to something or says what it waits for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable

from tests.chaos.client import Client, Json, at
from tests.chaos.field import Field
from tests.chaos.history import History, JobSeen
from tests.chaos.on_nodes import bring_back, set_taint, uncordon

BREAKER = "/api/v1/namespaces/default/configmaps/oarlock-cordon-breaker"


async def mend(field: Field) -> None:
    """Bring everything back that the storm has taken away. Nothing is done to jobs and pods."""
    field.history.note("STEP all is mended: nodes come back, a person uncordons all, both operators run")
    for machine in list(field.kubelets.machines.values()):
        if not machine.up:
            await bring_back(field, machine)
        if machine.taint:
            await set_taint(field, machine, there=False)
    for node in [each for each in field.history.nodes.values() if each.off and not each.deleted]:
        await uncordon(field, node.name)
    await field.client.call("DELETE", BREAKER)
    field.operators.calm()


async def collected(field: Field, tend: Callable[[], None], *, seconds: float) -> None:
    """Wait until nothing is left that a deleted job owned; what still is after so many seconds, a person deletes.

    It is the work of the cluster's garbage collector. One whose API server is killed while it reads which kinds there are
    forgets a kind for a moment, does not hear who is deleted then, and takes what these owned never. A job that is made
    again waits for it, and says what somebody has to delete.
    """
    deadline = time.monotonic() + seconds
    while left := left_behind(
        [item async for item in _owned(field.client)], {job.uid for job in field.history.living()}
    ):
        if time.monotonic() > deadline:
            for path in left:
                field.history.note(f"STEP a person deletes what the garbage collector has missed: {path}")
                await field.client.call("DELETE", path)
            return
        tend()
        await asyncio.sleep(0.5)


def left_behind(objects: Iterable[tuple[str, Json]], living: set[str]) -> list[str]:
    """Paths of what is there, and is not even being deleted, though the TrainingJob that owns it is gone.

    `objects`: each with the plural of its kind.
    """
    return [
        at(item["metadata"], kind)
        for kind, item in objects
        if not item["metadata"].get("deletionTimestamp")
        and any(
            owner["kind"] == "TrainingJob" and owner["uid"] not in living
            for owner in item["metadata"].get("ownerReferences") or ()
        )
    ]


async def _owned(client: Client) -> AsyncIterator[tuple[str, Json]]:
    for kind in ("pods", "services"):
        for item in (await client.call("GET", f"/api/v1/{kind}") or {}).get("items", ()):
            yield kind, item


async def settled(history: History, tend: Callable[[], None], *, seconds: float) -> list[str]:
    """Wait until nothing is open any more; what still is after so many seconds, in words."""
    deadline = time.monotonic() + seconds
    while open_ := [words for job in history.living() if (words := unsettled(history, job))] + orphans(history):
        if time.monotonic() > deadline:
            return open_
        tend()
        await asyncio.sleep(0.5)
    return []


def unsettled(history: History, job: JobSeen) -> str:
    """What is open in a job, empty where it has come to something, or waits and says for what."""
    status = job.body.get("status") or {}
    pods = [life for life in history.lives.values() if life.job_uid == job.uid and life.ended is None]
    said = f"{job.name} is {job.phase or 'new'} ({status.get('reason')}), attempt {job.attempt}, {len(pods)} pods"
    said += f": {status.get('message')}; {json.dumps(status.get('recovery') or {})}"
    if job.body["metadata"].get("deletionTimestamp"):
        return f"{said}, and is to be deleted"
    if job.phase in ("Succeeded", "Failed"):
        return said if pods else ""
    if job.body["spec"].get("suspend"):
        return "" if job.phase == "Suspended" and not pods else f"{said}, and is to be suspended"
    if job.phase == "Running":
        whole = len(pods) == job.body["spec"]["nodes"] and {life.attempt for life in pods} == {job.attempt}
        return "" if whole else said
    return "" if waits_in_words(job) else said


def waits_in_words(job: JobSeen) -> bool:
    """Whether a job that does not run says in a condition why."""
    if job.phase not in ("Pending", "Queued", "Starting", "Recovering"):
        return False
    conditions = (job.body.get("status") or {}).get("conditions") or ()
    waiting = [each for each in conditions if each["type"] in ("Scheduled", "Accepted") and each["status"] == "False"]
    return any(each.get("reason") and each.get("message") for each in waiting)


def orphans(history: History) -> list[str]:
    """Pods whose job is gone."""
    there = {job.uid for job in history.living()}
    left = [life for life in history.lives.values() if life.ended is None and life.job_uid not in there]
    return [f"pod {life.namespace}/{life.name} outlives its job {life.job_uid[:6]}" for life in left]


async def clear(client: Client, history: History) -> None:
    """Delete what has ended, so that the next storm has room."""
    for job in history.living():
        if job.phase in ("Succeeded", "Failed"):
            await client.call("DELETE", at(job.body["metadata"], "trainingjobs"), {"propagationPolicy": "Background"})
