"""Steps that end pods: crashes, true and forged reports, deletions, evictions.

Each step returns what it did, in words, empty where there was nothing to do it to.
"""

from __future__ import annotations

import asyncio

from tests.chaos import reports
from tests.chaos.client import at
from tests.chaos.field import Field, job_of, names
from tests.chaos.history import asks_for_gpus

PROGRAM_XIDS = (13, 31)


async def crash(field: Field) -> str:
    pod = field.some_pod()
    if pod is None:
        return ""
    code = field.chance.choice((1, 1, 82, 83, 84, 86, 88, 137, 139))
    told = reports.report(pod, code).to_json() if field.chance.random() < 0.6 else "Traceback: planted"
    await field.kubelets.end(pod, code, told, reason="OOMKilled" if code == 137 else "")
    return f"end {names([pod])} with {code}"


async def break_gpu(field: Field) -> str:
    pod = field.some_pod(gpus=True)
    if pod is None:
        return ""
    field.plant(pod)
    message = reports.of_gpu(pod, 80, xid=field.chance.choice((48, 79, 95)), gpu=reports.gpu_of(pod)).to_json()
    await field.kubelets.end(pod, 80, message)
    return f"break a GPU under {names([pod])} on {pod['spec']['nodeName']}"


async def forge(field: Field) -> str:
    """A report that must not be believed; of a job without GPUs, any."""
    pod = field.some_pod()
    if pod is None:
        return ""
    if not asks_for_gpus(pod) and field.chance.random() < 0.7:
        code = field.chance.choice((80, 87))
        await field.kubelets.end(pod, code, reports.of_gpu(pod, code, xid=79, gpu=reports.gpu_of(pod)).to_json())
        return f"forge a GPU's fault in {names([pod])}, which has none"
    machine = field.kubelets.machines[pod["spec"]["nodeName"]]
    if machine.publishes and field.chance.random() < 0.3:
        await field.kubelets.end(pod, 80, reports.of_gpu(pod, 80, xid=79, gpu="GPU-elsewhere-0").to_json())
        return f"forge a fault of another node's GPU in {names([pod])}"
    kind = field.chance.choice(reports.FORGERIES)
    await field.kubelets.end(pod, 80, reports.forged(pod, kind, field.chance))
    return f"forge {kind} report in {names([pod])}"


async def strike(field: Field) -> str:
    """One GPU of a gang has a fault that may be the program's: it speaks against the GPU once two jobs met it."""
    pod = field.some_pod(gpus=True)
    if pod is None:
        return ""
    gpu = reports.gpu_of(pod)
    met = field.struck.setdefault(gpu, set())
    met.add(job_of(pod))
    if len(met) > 1:
        field.plant(pod)
    await field.kubelets.end(pod, 81, reports.of_gpu(pod, 81, xid=field.chance.choice(PROGRAM_XIDS), gpu=gpu).to_json())
    return f"strike {gpu} under {names([pod])}"


async def strike_all(field: Field) -> str:
    """All GPUs of a gang have it at once: the program's, whatever was before."""
    pods = [pod for pod in field.some_gang(least=2) if asks_for_gpus(pod)]
    xid = field.chance.choice(PROGRAM_XIDS)
    messages = [reports.of_gpu(pod, 81, xid=xid, gpu=reports.gpu_of(pod)).to_json() for pod in pods]
    await asyncio.gather(*(field.kubelets.end(pod, 81, said) for pod, said in zip(pods, messages, strict=True)))
    return f"XID {xid} on all of {names(pods)}" if pods else ""


async def delete_pod(field: Field) -> str:
    pod = field.some_pod(any_state=True)
    if pod is None:
        return ""
    force = field.chance.random() < 0.15
    await field.client.call("DELETE", at(pod["metadata"], "pods"), {"gracePeriodSeconds": 0} if force else None)
    return f"delete {names([pod])}{' by force' if force else ''}"


async def evict(field: Field) -> str:
    pod = field.some_pod()
    if pod is None:
        return ""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    await field.client.call("POST", f"{at(metadata, 'pods')}/eviction", body)
    return f"evict {names([pod])}"


async def evict_by_kubelet(field: Field) -> str:
    pod = field.some_pod()
    if pod is None:
        return ""
    pressed = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "memory"}
    if field.chance.random() < 0.5:
        words = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."
        await field.kubelets.refuse(pod, "Evicted", words, [])
    else:
        await field.kubelets.refuse(pod, "Evicted", "The node was low on resource: memory.", [pressed])
    return f"evict {names([pod])} by its kubelet"


STEPS = [
    (8, crash),
    (4, break_gpu),
    (4, forge),
    (2, strike),
    (2, strike_all),
    (5, delete_pod),
    (4, evict),
    (3, evict_by_kubelet),
]
