"""Steps that people take with jobs.

Each step returns what it did, in words, empty where there was nothing to do it to.
"""

from __future__ import annotations

import asyncio

from tests.chaos.client import GROUP, Json, at
from tests.chaos.field import Field, names
from tests.chaos.jobs import NAMES, NAMESPACES, job


async def make_job(field: Field) -> str:
    there = {each.name for each in field.history.living()}
    free = [(space, name) for space in NAMESPACES for name in NAMES if f"{space}/{name}" not in there]
    if not free:
        return ""
    space, name = field.chance.choice(free)
    return await submit(field, job(space, name, field.chance, port=field.port))


async def submit(field: Field, body: Json) -> str:
    space, name = body["metadata"]["namespace"], body["metadata"]["name"]
    made = await field.client.call("POST", f"{GROUP}/namespaces/{space}/trainingjobs?fieldValidation=Strict", body)
    return f"make {space}/{name}: {body['spec']['nodes']} x {body['spec']['gpusPerNode']}" if made else ""


async def suspend_or_resume(field: Field) -> str:
    chosen = field.some_job()
    if chosen is None:
        return ""
    wanted = not chosen.body["spec"].get("suspend")
    await field.client.merge(at(chosen.body["metadata"], "trainingjobs"), {"spec": {"suspend": wanted}})
    return f"{'suspend' if wanted else 'resume'} {chosen.name}"


async def delete_job(field: Field) -> str:
    chosen = field.some_job()
    if chosen is None:
        return ""
    policy = field.chance.choice(("Background", "Background", "Foreground"))
    await field.client.call("DELETE", at(chosen.body["metadata"], "trainingjobs"), {"propagationPolicy": policy})
    return f"delete {chosen.name} ({policy})"


async def make_again(field: Field) -> str:
    chosen = field.some_job()
    if chosen is None:
        return ""
    metadata = chosen.body["metadata"]
    await field.client.call("DELETE", at(metadata, "trainingjobs"), {"propagationPolicy": "Background"})
    said = await submit(field, job(metadata["namespace"], metadata["name"], field.chance, port=field.port))
    return f"delete and {said}" if said else f"delete {chosen.name}"


async def finish(field: Field) -> str:
    pods = field.some_gang(least=1)
    await asyncio.gather(*(field.kubelets.end(pod, 0) for pod in pods))
    return f"finish {names(pods)}" if pods else ""


STEPS = [
    (14, make_job),
    (3, suspend_or_resume),
    (3, delete_job),
    (3, make_again),
    (4, finish),
]
