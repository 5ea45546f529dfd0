"""`make chaos`: storms and calms for some minutes, judged all the while. Exit code 1 where something was that must not be."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from oarlock_local.account import Account
from oarlock_local.binaries import HELM
from oarlock_local.build import built
from oarlock_local.chart import render
from oarlock_local.cluster import Cluster, running
from oarlock_local.crd import apply_crd
from tests.chaos.client import GROUP, NODES, Client
from tests.chaos.field import Field
from tests.chaos.history import History
from tests.chaos.jobs import NAMESPACES, TEARDOWN_SECONDS
from tests.chaos.judge import Judge
from tests.chaos.nodes import GPUS, Kubelets
from tests.chaos.operators import MOST_CORDONS, WINDOW_SECONDS, Operators
from tests.chaos.reports import Ledger
from tests.chaos.run import Run, say
from tests.chaos.voices import Voices, speaking

ROOT = Path(__file__).parents[2]
GPU_NODES, CPU_NODES = 20, 4
WATCHED = {"pods": "/api/v1/pods", "jobs": f"{GROUP}/trainingjobs", "nodes": NODES}
VALUES = {
    "image": {"repository": "registry.example.com/oarlock/operator"},
    "trainerImage": "registry.example.com/trainer:1",
    "cordon": True,
}
EVENTS = 150
"""How many are told with a violation."""
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


async def chaos(cluster: Cluster, given: argparse.Namespace, folder: Path) -> int:
    """One run on a control plane; how many violations it found."""
    kubeconfig = prepared(cluster, folder)
    history, ledger = History(), Ledger()
    judge = Judge(history, ledger, TEARDOWN_SECONDS, MOST_CORDONS, timedelta(seconds=WINDOW_SECONDS))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(cluster.kubeconfig))
        kubelets = Kubelets(client, history, chance(f"{given.seed} kubelets"))
        operators = Operators(kubeconfig, folder, chance(f"{given.seed} operators"))
        judge.tell = teller(history, operators)
        port = await stack.enter_async_context(speaking(Voices(kubelets)))
        field = Field(cluster, client, history, kubelets, operators, ledger, chance(f"{given.seed} storm"), port)
        for number in range(GPU_NODES + CPU_NODES):
            await kubelets.add(f"node-{number}", GPUS if number < GPU_NODES else 0)
        run = Run(field, judge, minutes=given.minutes, patience=given.patience, keep_going=given.keep_going)
        with stopped_at_end(operators):
            tasks = [asyncio.create_task(follow(client, kind, judge)) for kind in WATCHED]
            tasks += [asyncio.create_task(kubelets.run()), asyncio.create_task(run.play())]
            done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.wait(others) if others else None
            for task in done:
                task.result()
    say("steps: " + ", ".join(f"{name} {count}" for name, count in run.storm.counts.most_common()))
    say("operators: " + ", ".join(f"{name} {count}" for name, count in sorted(operators.counts.items())))
    (folder / "events").write_text("\n".join(history.tail) + "\n")
    say("\n".join(["", *(f"VIOLATION {words}" for words in judge.found), f"the last events and both logs: {folder}"]))
    return len(judge.found)


async def follow(client: Client, kind: str, judge: Judge) -> None:
    """Hand every event of one watch to the judge."""
    async for event in client.watch(WATCHED[kind]):
        judge.event(kind, event)


@contextmanager
def stopped_at_end(operators: Operators) -> Iterator[None]:
    """No operator outlives the block."""
    try:
        yield
    finally:
        operators.stop()


def prepared(cluster: Cluster, folder: Path) -> Path:
    """The kind, the namespaces and the operator's account with the chart's rights; the operators' kubeconfig."""
    apply_crd(cluster, ROOT / "crds/trainingjobs.yaml")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES)
    objects = render(ROOT / "charts/oarlock", built(HELM), release="oarlock", namespace="default", values=VALUES)
    policies = [each for each in objects if each["kind"] in POLICIES]
    if policies:
        cluster.apply(policies)
    return Account.made(cluster, objects).write_kubeconfig(folder / "kubeconfig")


def teller(history: History, operators: Operators) -> Callable[[str], None]:
    """Whoever tells of a violation, with the last events before it."""

    def tell(words: str) -> None:
        before = "\n".join(list(history.tail)[-EVENTS:])
        say(f"\n{before}\n{operators.log_tail()}\n\nVIOLATION {words}\n")

    return tell


def chance(seed: str) -> random.Random:
    """Choices that are the same for the same seed."""
    return random.Random(seed)  # noqa: S311 - nothing secret


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="what is chosen")
    parser.add_argument("--minutes", type=float, default=5, help="how long, by the clock")
    parser.add_argument("--patience", type=float, default=60, help="seconds after a calm until a job counts as stuck")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"oarlock-chaos-{given.seed}-"))
    say(f"seed {given.seed}, {given.minutes:g} minutes, logs in {folder}")
    with running("chaos", nodes=0, guard_owners=True, state=folder / "cluster") as cluster:
        found = asyncio.run(chaos(cluster, given, folder))
    say(json.dumps({"seed": given.seed, "minutes": given.minutes, "violations": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
