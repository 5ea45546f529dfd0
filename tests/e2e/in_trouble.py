"""Jobs in trouble on a local cluster, until `why` tells of each what was done to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from oarlock.cluster import Cluster, connect
from oarlock.explain import explain
from oarlock.facts import Facts
from oarlock.facts.cluster import from_cluster
from oarlock.story import Story
from oarlock_local import patience
from tests.e2e.jobs import Jobs
from tests.e2e.troubles import Trouble, apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What `why` says of a trouble. `node` is the one that it has to name, `right` whether it names cause and node."""

    trouble: Trouble
    facts: Facts
    node: str
    right: bool

    @property
    def answer(self) -> str:
        """The cause, the node and the sentence that were given."""
        cause, node = told_of(explain(self.facts))
        return f"{cause} on {node or 'no node'}: {explain(self.facts).now.message[:300]}"


def told(jobs: Jobs, chosen: Sequence[Trouble]) -> Iterator[Told]:
    """Apply all jobs, strike each once it trains, and yield it as soon as it is told rightly; those that never are, last."""
    cluster = connect(kubeconfig=str(jobs.cluster.kubeconfig))
    for one in chosen:
        apply(jobs, one)
    left, deadline = {one.name: one for one in chosen}, time.monotonic() + patience.SECONDS
    where: dict[str, dict[int, str]] = {}
    while left and time.monotonic() < deadline:
        for name, one in list(left.items()):
            facts = gather(cluster, one)
            if one.strike and name not in where:
                if trains(facts, one):
                    where[name] = nodes_of(facts)
                    one.strike(jobs, where[name])
                continue
            found = judged(one, facts, where.get(name) or nodes_of(facts))
            if found.right:
                del left[name]
                yield found
        time.sleep(0.5)
    for name, one in left.items():
        yield judged(one, facts := gather(cluster, one), where.get(name) or nodes_of(facts))


def gather(cluster: Cluster, one: Trouble) -> Facts:
    """What the API server says of the job now."""
    return from_cluster(cluster.get, namespace=one.namespace, name=one.name, now=datetime.now(UTC))


def judged(one: Trouble, facts: Facts, where: dict[int, str]) -> Told:
    """Whether the story is right. Of what was struck, once the operator has judged it: its word is what stays."""
    cause, node = told_of(explain(facts))
    named = one.place or (node if one.node is None else where.get(one.node, node))
    status = (facts.job or {}).get("status") or {}
    over = "completionTime" in status
    settled = over if one.over else one.strike is None or over or status.get("attempt", 0) > 1
    right = cause == one.cause and node == named and bool(settled and (node or one.node is None))
    return Told(trouble=one, facts=facts, node=named, right=right)


def told_of(story: Story) -> tuple[str, str]:
    """Cause and node: of the trouble, or of a calm job's state."""
    return (story.trouble.cause, story.trouble.node) if story.trouble else (story.now.cause, "")


def trains(facts: Facts, one: Trouble) -> bool:
    """Whether all its pods have nodes, and it makes steps."""
    status = (facts.job or {}).get("status") or {}
    step: int = (status.get("progress") or {}).get("step", 0)
    return step > 2 and len(nodes_of(facts)) == one.spec.get("nodes", 1)


def nodes_of(facts: Facts) -> dict[int, str]:
    """Rank -> node of the pods that have one."""
    return {
        int(pod["metadata"]["labels"]["oarlock.dev/rank"]): pod["spec"]["nodeName"]
        for pod in facts.pods
        if pod["spec"].get("nodeName")
    }
