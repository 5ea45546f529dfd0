"""Nodes of the tests' world as far as cordons go: what is written on them, by whom, and what a look at the pool finds.

What must never happen is checked whenever a cordon takes effect: not without the proof of a pod that ran on that very node,
not against a person's word, and not beyond the brakes of the window, whoever asks and whatever was forgotten on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Job
from oarlock_operator.model.observed_nodes import CordonMark, Ledger, Node, Pool, PoolNode
from oarlock_operator.model.plan import CordonNode


@dataclass(frozen=True)
class PlayedNode:
    """One node. `mark` stands, `ended` is what was kept of one that a person has ended."""

    uid: str
    made: datetime | None = None
    unschedulable: bool = False
    mark: CordonMark | None = None
    ended: CordonMark | None = None


@dataclass
class Fleet:
    """All nodes by name. One that was never spoken of is as any other."""

    nodes: dict[str, PlayedNode] = field(default_factory=dict)
    refuses: bool = False
    """A policy lets nobody write nodes."""
    made: int = 0
    ledger: dict[tuple[str, str, datetime], CordonMark] = field(default_factory=dict)
    """The ledger of cordons."""
    ran_on: set[tuple[str, str]] = field(default_factory=set)
    """Job and uid of each node on which a pod ran."""
    given_back: set[tuple[str, str, datetime]] = field(default_factory=set)
    """Uid, job and time of cordons that a person has ended."""
    effects: list[tuple[datetime, str]] = field(default_factory=list)
    """When a cordon took effect, and for which namespace."""
    brakes: Pool | None = None
    """Whose brakes hold; none for a fleet whose test looks at one job alone."""

    def node(self, name: str) -> PlayedNode:
        """A node of that name."""
        return self.nodes.setdefault(name, PlayedNode(uid=f"uid-of-{name}"))

    def seen(self, name: str, told: Node | None) -> Node:
        """As a pass sees it. `told`: what the test says of it otherwise."""
        played = self.node(name)
        known = told or Node(
            name=name, maintenance=Maintenance("cordoned", enforced=True) if played.unschedulable else None
        )
        return replace(
            known,
            uid=known.uid or played.uid,
            unschedulable=known.unschedulable or (played.unschedulable and told is None),
            cordon=known.cordon or played.mark or played.ended,
        )

    def ran(self, job: Job, name: str) -> None:
        """A pod of the job runs there."""
        self.ran_on.add((f"{job.namespace}/{job.name}", self.node(name).uid))

    def enter(self, job: Job, action: CordonNode) -> bool:
        """What PoolReader.enter does; whether it was new."""
        entry = CordonMark(action.node, f"{job.namespace}/{job.name}", action.time, uid=job.uid)
        return self.ledger.setdefault(entry.key, entry) is entry

    def cordon(self, job: Job, action: CordonNode) -> bool:
        """What PoolReader.cordon does up to the write of the node; whether it took effect."""
        node, owner = self.node(action.node), f"{job.namespace}/{job.name}"
        entry = self.ledger.get((action.node, owner, action.time))
        assert entry is not None, "a cordon that stands in no ledger"
        before = node.mark or node.ended
        done = entry.done is not None or (before is not None and before.key == entry.key)
        if self.refuses or node.uid != action.uid or node.unschedulable or done:
            return False
        assert (owner, node.uid) in self.ran_on, "a node was cordoned that no pod of this job ran on"
        assert (node.uid, owner, action.time) not in self.given_back, "a person's word was overridden"
        self.effects.append((action.at, job.namespace))
        self._check_the_brakes(action.at, job.namespace)
        mark = CordonMark(action.node, owner, action.time, action.at)
        self.nodes[action.node] = replace(node, unschedulable=True, mark=mark, ended=None)
        return True

    def note(self, job: Job, action: CordonNode) -> None:
        """What PoolReader.cordon does after it."""
        key = action.node, f"{job.namespace}/{job.name}", action.time
        self.ledger[key] = replace(self.ledger[key], done=action.at)

    def uncordon(self, name: str) -> None:
        """A person gives it back, and the operator keeps what its mark said."""
        node = self.node(name)
        if node.mark:
            self.given_back.add((node.uid, node.mark.job, node.mark.time))
        self.nodes[name] = replace(node, unschedulable=False, mark=None, ended=node.mark or node.ended)

    def replace(self, name: str, *, at: datetime | None = None) -> None:
        """Another machine under the old name: nothing is written on it."""
        self.made += 1
        self.nodes[name] = PlayedNode(uid=f"uid-{self.made}-of-{name}", made=at)

    def pool(self, template: Pool, living: set[str]) -> Pool:
        """What PoolReader.read finds, beside what the template says. `living`: uids of the jobs that there are."""
        names = dict(self.nodes)
        off = {name for name, node in names.items() if node.unschedulable}
        entered = [m if m.done or m.uid in living else replace(m, done=m.time) for m in self.ledger.values()]
        gpus = frozenset({"nvidia.com/gpu"})
        return replace(
            template,
            schedulable=template.schedulable - len(off - template.unschedulable),
            unschedulable=template.unschedulable | off,
            ours=(*template.ours, *(node.mark for node in names.values() if node.mark)),
            ledger=Ledger((*template.ledger.entries, *entered)),
            members={
                **{n: PoolNode(uid=p.uid, made=p.made, resources=gpus) for n, p in names.items()},
                **template.members,
            },
        )

    def _check_the_brakes(self, now: datetime, namespace: str) -> None:
        if self.brakes is None:
            return
        limits = self.brakes.brakes
        recent = [whose for at, whose in self.effects if now - at < timedelta(seconds=limits.window_seconds)]
        assert len(recent) <= max(limits.max_nodes, int(self.brakes.size * limits.max_percent / 100))
        share = max(limits.namespace_max_nodes, int(self.brakes.size * limits.namespace_max_percent / 100))
        assert recent.count(namespace) <= share, "a namespace has more than its share"
        assert 2 * sum(node.mark is not None for node in self.nodes.values()) <= self.brakes.size
