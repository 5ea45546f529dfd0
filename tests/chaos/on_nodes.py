"""Steps that are taken with nodes: they are lost, found, replaced, tainted, cordoned and uncordoned by a person.

Each step returns what it did, in words, empty where there was nothing to do it to.
"""

from __future__ import annotations

from tests.chaos.client import NODES
from tests.chaos.field import Field
from tests.chaos.nodes import Machine

TAINT = {"key": "example.com/maintenance", "effect": "NoExecute"}


async def lose_node(field: Field) -> str:
    up = [each for each in field.kubelets.machines.values() if each.up]
    if len(up) * 2 <= len(field.kubelets.machines):
        return ""
    chosen = field.chance.choice(up)
    if field.chance.random() < 0.25:
        await field.kubelets.remove(chosen.name)
        return f"node {chosen.name} is gone"
    status = field.chance.choice(("False", "Unknown"))
    await field.kubelets.set_ready(chosen.name, status)
    return f"node {chosen.name} is Ready={status}"


async def find_node(field: Field) -> str:
    down = [each for each in field.kubelets.machines.values() if not each.up]
    return await bring_back(field, field.chance.choice(down)) if down else ""


async def bring_back(field: Field, machine: Machine) -> str:
    """A node that was lost is there again: as it was, or as another machine where its object is gone."""
    seen = field.history.nodes.get(machine.uid)
    if seen is None or seen.deleted:
        await field.kubelets.add(machine.name, machine.gpus)
        return f"node {machine.name} comes anew"
    await field.kubelets.set_ready(machine.name, "True")
    return f"node {machine.name} is back"


async def replace_node(field: Field) -> str:
    chosen = field.some_machine()
    if chosen is None:
        return ""
    await field.kubelets.remove(chosen.name)
    await field.kubelets.add(chosen.name, chosen.gpus)
    return f"node {chosen.name} is another machine"


async def taint(field: Field) -> str:
    chosen = field.some_machine()
    return await set_taint(field, chosen, there=True) if chosen else ""


async def untaint(field: Field) -> str:
    tainted = [each for each in field.kubelets.machines.values() if each.taint and each.up]
    return await set_taint(field, field.chance.choice(tainted), there=False) if tainted else ""


async def set_taint(field: Field, machine: Machine, *, there: bool) -> str:
    """Put the taint that takes all pods away, or remove it; others' taints stay."""
    node = await field.client.call("GET", f"{NODES}/{machine.name}")
    if node is None:
        return ""
    kept = [each for each in node["spec"].get("taints") or () if each["key"] != TAINT["key"]]
    body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}}
    done = await field.client.merge(
        f"{NODES}/{machine.name}", {**body, "spec": {"taints": [*kept, TAINT] if there else kept}}
    )
    if done is None:
        return ""
    machine.taint = there
    return f"{'taint' if there else 'untaint'} {machine.name}"


async def cordon(field: Field) -> str:
    chosen = field.some_machine()
    seen = field.history.nodes.get(chosen.uid) if chosen else None
    if chosen is None or seen is None or seen.off:
        return ""
    field.ledger.cordoned_by_hand.add(chosen.uid)
    await field.client.merge(f"{NODES}/{chosen.name}", {"spec": {"unschedulable": True}})
    return f"a person cordons {chosen.name}"


async def uncordon_one(field: Field) -> str:
    off = [each for each in field.history.nodes.values() if each.off and not each.deleted]
    return await uncordon(field, field.chance.choice(off).name) if off else ""


async def uncordon(field: Field, name: str) -> str:
    """As `kubectl uncordon` does it."""
    field.ledger.uncordoned_by_hand.add(field.kubelets.machines[name].uid)
    await field.client.merge(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
    return f"a person uncordons {name}"


STEPS = [
    (4, lose_node),
    (6, find_node),
    (2, replace_node),
    (2, taint),
    (3, untaint),
    (2, cordon),
    (4, uncordon_one),
]
