"""How fast the operator is beside the least that could do its work, on a real control plane with fake nodes.

    .venv/bin/python bench/gangs.py [--sizes 4 32 128] [--many 200x4] [--runs 3] [--contenders ...] [--replace] [--profile]

The operator, the floor (floor.py) with the operator's pods, the floor with minimal pods and, where it is asked for, JobSet
take turns: gangs of each size are started, restarted after one rank's crash, and deleted; many jobs are started at once
and deleted; nodes are lost. With `--replace` one pod of a gang is made anew by itself instead, by the operator alone.
Prints a table and writes bench/results/gangs.json. Nodes and kubelets are KWOK's: no image is pulled and no grace period
waited for. Compare ratios within one run, not seconds across machines. `--profile` profiles the operator scenario by
scenario, which makes it slower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from connection import JOBS, Connection, until
from contenders import ROOT, Contender, floor, make_claim, minimal_template, operator, pod_template
from fake_nodes import fake_nodes
from gang_table import one_line, table
from jobset import jobset
from measuring import Measuring, Record
from pod_watch import watching
from profiles import Profiles
from scenarios import Jobs, Scenarios

from oarlock_local.cluster import Cluster, running
from oarlock_local.processes import children

Case = TypeVar("Case")
RESULTS = ROOT / "bench/results"
WARM_UP = 4
NODE_LOSS_SIZE = 4


class Bench:
    """One run: what is asked for, and what was measured so far."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.records: list[Record] = []
        self._jobs = 0

    async def run(self, cluster: Cluster) -> None:
        """Measure everything."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
        async with AsyncExitStack() as stack:
            scenarios, contenders = await self._set_up(cluster, stack)
            turns = [contenders[name] for name in self.given.contenders]
            await self._warm_up(scenarios, turns)
            for size in self._repeated(self.given.sizes):
                for contender in turns:
                    await self._one_gang(scenarios, contender, size)
            for jobs, size in self._repeated(self.given.many):
                for contender in turns:
                    await self._many(scenarios, contender, jobs, size)
            if self.given.node_loss:
                for deleted in self._repeated([True, False]):
                    await self._node_loss(scenarios, contenders["operator"], deleted=deleted)

    async def _set_up(self, cluster: Cluster, stack: AsyncExitStack) -> tuple[Scenarios, dict[str, Contender]]:
        """Everything that runs beside the control plane, until the stack is closed."""
        given = self.given
        api = await stack.enter_async_context(Connection(cluster.kubeconfig))
        cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "crds/trainingjobs.yaml"))

        async def is_served() -> bool:
            return await api.find(JOBS) is not None

        await until(is_served)
        await make_claim(api)
        count = max([WARM_UP, NODE_LOSS_SIZE, *given.sizes, *(jobs * nodes for jobs, nodes in given.many)]) + 1
        say(f"{count} fake nodes")
        nodes = await stack.enter_async_context(fake_nodes(cluster, api, count))
        watch = await stack.enter_async_context(watching(cluster.kubeconfig))
        profiles = Profiles(RESULTS / "profile.prof") if given.profile else None
        log, file = RESULTS / "gangs-operator.log", profiles.file if profiles else None
        contenders: dict[str, Contender] = {}
        claim = given.output == "claim"
        if "operator" in given.contenders or given.node_loss:
            contenders["operator"] = stack.enter_context(
                operator(api, cluster.kubeconfig, log, profile=file, claim=claim, in_place=given.replace)
            )
        if "floor" in given.contenders:
            asked = given.floor == "TrainingJob"
            contenders["floor"] = stack.enter_context(
                floor(
                    "floor",
                    api,
                    cluster.kubeconfig,
                    cluster.logs,
                    template=pod_template(claim=claim),
                    keeps_status=asked,
                )
            )
        if "minimal" in given.contenders:
            contenders["minimal"] = stack.enter_context(
                floor("minimal", api, cluster.kubeconfig, cluster.logs, template=minimal_template(claim=claim))
            )
        if "jobset" in given.contenders:
            contenders["jobset"] = stack.enter_context(jobset(api, cluster, cluster.logs, claim=claim))
        supervisor = json.loads(cluster.spec.folder.supervisor.read_text())["pid"]
        pids = [*children(supervisor), nodes.pid]
        measuring = Measuring(watch, pids, list(contenders.values()), profiles=profiles, patience=given.patience)
        chance = random.Random(given.seed)  # noqa: S311 - which pods crash is no secret
        return Scenarios(api, watch, measuring, nodes, chance), contenders

    def _repeated(self, what: Sequence[Case]) -> Iterator[Case]:
        return (one for one in what for _ in range(self.given.runs))

    async def _warm_up(self, scenarios: Scenarios, turns: Sequence[Contender]) -> None:
        """The garbage collector needs up to 40 s before it knows a new kind: the first deletion waits for that."""
        say("a first gang each, not counted; the garbage collector gets to know TrainingJobs (up to a minute)")
        for contender in turns:
            jobs = self._new(contender, 1, WARM_UP)
            for step in (scenarios.start, scenarios.restart, scenarios.delete):
                await step(contender, jobs)
        if (largest := max(self.given.sizes, default=0)) > WARM_UP:
            say("the largest gang once, not counted: the first one makes the control plane's processes grow")
            jobs = self._new(turns[-1], 1, largest)
            for step in (scenarios.start, scenarios.delete):
                await step(turns[-1], jobs)

    async def _one_gang(self, scenarios: Scenarios, contender: Contender, size: int) -> None:
        jobs = self._new(contender, 1, size)
        fault = scenarios.replace if self.given.replace else scenarios.restart
        for step in (scenarios.start, fault, scenarios.delete):
            self._keep(await step(contender, jobs))

    async def _many(self, scenarios: Scenarios, contender: Contender, count: int, size: int) -> None:
        jobs = self._new(contender, count, size)
        self._keep(await scenarios.start(contender, jobs))
        self._keep(await scenarios.delete(contender, jobs))

    async def _node_loss(self, scenarios: Scenarios, contender: Contender, *, deleted: bool) -> None:
        jobs = self._new(contender, 1, NODE_LOSS_SIZE)
        await scenarios.start(contender, jobs)
        self._keep(await scenarios.lose_node(contender, jobs, deleted=deleted))

    def _new(self, contender: Contender, count: int, size: int) -> Jobs:
        self._jobs += 1
        return Jobs.of(f"{contender.name}-{self._jobs}", count, size)

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        say(one_line(record))
        written = {"records": [record.to_json() for record in self.records]}
        (RESULTS / "gangs.json").write_text(json.dumps(written, indent=1) + "\n")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 32, 128], metavar="N", help="nodes of one gang")
    parser.add_argument("--many", type=_many, nargs="*", default=[(200, 4)], metavar="JOBSxN", help="jobs at once")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--contenders",
        nargs="+",
        choices=["operator", "floor", "minimal", "jobset"],
        default=["operator", "floor", "minimal"],
        help="`floor` writes the operator's pods, `minimal` plain ones; `jobset` is built first, for minutes",
    )
    parser.add_argument(
        "--output",
        choices=["nfs", "claim"],
        default="nfs",
        help="where jobs write: an export, left to the nodes, or a claim, which all contenders' pods mount",
    )
    parser.add_argument(
        "--floor",
        choices=["ConfigMap", "TrainingJob"],
        default="ConfigMap",
        help="what the floor is asked by; of a TrainingJob it writes the status once (without the operator, who would act)",
    )
    parser.add_argument("--node-loss", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--replace",
        action="store_true",
        help="kill one pod of each gang, which is made anew by itself: with the operator",
    )
    parser.add_argument("--profile", action="store_true", help="write bench/results/profile-SCENARIO.prof and .txt")
    parser.add_argument(
        "--patience", type=float, default=60, metavar="SECONDS", help="how long to wait for others to leave the cores"
    )
    parser.add_argument(
        "--stock-controllers",
        action="store_true",
        help="let the controller manager make 20 requests a second for each of its controllers, as it is released",
    )
    parser.add_argument("--seed", type=int, default=1, help="which pods crash")
    given = parser.parse_args()
    if given.floor == "TrainingJob" and (given.node_loss or given.contenders != ["floor"]):
        parser.error("--floor TrainingJob goes with --contenders floor --no-node-loss")
    if given.replace and given.contenders != ["operator"]:
        parser.error("--replace goes with --contenders operator")
    bench = Bench(given)
    RESULTS.mkdir(exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            running("gangs", nodes=0, stock_controllers=given.stock_controllers, state=Path(folder)) as cluster,
        ):
            asyncio.run(bench.run(cluster))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit("interrupted; nothing of the cluster is left") from None
    finally:
        # What was measured before an interruption counts.
        if bench.records:
            print("\n" + table(bench.records))


def say(what: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)


def _many(text: str) -> tuple[int, int]:
    jobs, _, nodes = text.partition("x")
    return int(jobs), int(nodes)


if __name__ == "__main__":
    main()
