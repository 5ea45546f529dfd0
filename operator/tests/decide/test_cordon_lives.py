"""Several jobs of several namespaces on one fleet, whatever happens: what must never be done to a node never is.

The checks stand in Fleet, at every cordon that takes effect: the proof of a pod that ran on that very node, a person's word,
the brakes of the cluster and of each namespace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from fleets import Fleet
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import START, job, spec
from world_writes import Killed
from worlds import World

from oarlock_local.pytest_tiers import examples
from oarlock_operator.decide.brakes import TOO_LATE
from oarlock_operator.model.observation import Pod
from oarlock_operator.model.observed_nodes import Brakes, Pool

NAMES = tuple(f"node-{number}" for number in range(6))
BRAKES = Brakes(max_nodes=3, namespace_max_nodes=1)
POOL = Pool(size=20, schedulable=20, brakes=BRAKES)


@dataclass
class Tenant(World):
    """A job that shares the fleet. `shift`: which nodes the scheduler tries first for it."""

    shift: int = 0

    def place(self, pod: Pod) -> str:
        """A node that takes pods and that this one does not keep off."""
        order = [NAMES[(self.shift + pod.rank + step) % len(NAMES)] for step in range(len(NAMES))]
        free = [name for name in order if not self.fleet.node(name).unschedulable and name not in pod.keeps_off]
        return (free or order)[0]

    def start_all(self) -> None:
        """As every scheduler, this one says when it placed a pod."""
        super().start_all()
        self.pods = {
            name: replace(pod, placed_at=pod.placed_at or self.now) if pod.node else pod
            for name, pod in self.pods.items()
        }


@dataclass
class Site:
    """All jobs, and the operator that they share."""

    fleet: Fleet = field(default_factory=lambda: Fleet(brakes=POOL))
    tenants: list[Tenant] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        for namespace in ("a", "a", "b", "c"):
            self.add(namespace)

    def add(self, namespace: str, name: str = "") -> None:
        """Somebody makes a job."""
        self.made += 1
        named = job(
            name=name or f"job-{self.made}", namespace=namespace, uid=f"uid-{self.made}", spec=spec(recovery=BUDGETS)
        )
        now = max((tenant.now for tenant in self.tenants), default=START)
        tenant = Tenant(job=named, fleet=self.fleet, may_cordon=True, pool=POOL, shift=self.made, now=now)
        tenant.neighbours = lambda: [other.job for other in self.tenants if other is not tenant]
        self.tenants.append(tenant)

    def renew(self, index: int) -> None:
        """Somebody deletes a job, and makes another one of its name."""
        gone = self.tenants.pop(index)
        self.add(gone.job.namespace, gone.job.name)

    def replace(self, name: str) -> None:
        """Another machine gets a node's name, after whatever was placed on the one before."""
        for tenant in self.tenants:
            tenant.now += timedelta(milliseconds=10)
        self.fleet.replace(name, at=max(tenant.now for tenant in self.tenants))

    def one(self, index: int) -> Tenant:
        """A job, at the time that it is for all."""
        tenant = self.tenants[index % len(self.tenants)]
        tenant.now = max(other.now for other in self.tenants)
        return tenant

    def wait(self, seconds: int) -> None:
        """Time goes by for all, and every job is looked at."""
        for index in range(len(self.tenants)):
            self.one(index).kubelets()
        for tenant in self.tenants:
            tenant.now += timedelta(seconds=seconds)
        for index in range(len(self.tenants)):
            self.one(index).settle(passes=6)


BUDGETS = {"maxInfrastructureRestarts": 100, "maxApplicationRestarts": 100, "maxRestartsWithoutProgress": 100}


def breaks(site: Site, index: int, code: int, xid: int) -> None:
    """A gang trains, and a GPU of its last rank speaks."""
    tenant = site.one(index)
    tenant.kubelets()
    tenant.settle(passes=6)
    tenant.start_all()
    ranks = [pod.rank for pod in tenant.pods.values() if pod.attempt == tenant.job.status.attempt and not pod.stopped]
    if ranks and tenant.job.status.completion_time is None:
        node = next(pod.node for pod in tenant.pods.values() if pod.rank == ranks[-1] and not pod.stopped)
        tenant.end(ranks[-1], code, xid=xid, uuid=f"GPU-of-{node}")
    tenant.settle(passes=6)


def dies(site: Site, index: int, writes: int) -> None:
    """The operator dies soon after, and the next one remembers nothing."""
    tenant = site.one(index)
    tenant.kill_at = tenant.writes + writes
    with contextlib.suppress(Killed):
        breaks(site, index, 80, 79)
    tenant.kill_at = None


HAPPENINGS: dict[str, Callable[[Site, int], None]] = {
    "a GPU breaks": lambda site, index: breaks(site, index, 80, 79),
    "another GPU breaks": lambda site, index: breaks(site, index + 1, 80, 48),
    "a GPU errs": lambda site, index: breaks(site, index, 81, 94),
    "a program errs": lambda site, index: breaks(site, index, 81, 31),
    "nodes may not be written": lambda site, _: setattr(site.fleet, "refuses", True),
    "nodes may be written": lambda site, _: setattr(site.fleet, "refuses", False),
    "another machine": lambda site, index: site.replace(NAMES[index % len(NAMES)]),
    "a person uncordons": lambda site, index: site.fleet.uncordon(NAMES[index % len(NAMES)]),
    "a while": lambda site, _: site.wait(61),
    "half an hour": lambda site, _: site.wait(1800),
    "an hour": lambda site, _: site.wait(3601),
    "a job is made anew": lambda site, index: site.renew(index % len(site.tenants)),
    "it dies after a write": lambda site, index: dies(site, index, 1 + index % 4),
    "it dies later": lambda site, index: dies(site, index, 5 + index % 8),
}


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.integers(0, 11)), min_size=6, max_size=25))
def test_no_node_is_cordoned_without_proof_against_a_person_or_beyond_the_brakes(
    happened: list[tuple[str, int]],
) -> None:
    site = Site()
    for what, index in happened:
        HAPPENINGS[what](site, index)


def test_every_cordon_that_may_be_done_is_done_once_nothing_hinders_it() -> None:
    site = Site()
    site.fleet.refuses = True
    for index in (0, 2, 3):
        breaks(site, index, 80, 79)
    assert site.fleet.effects == []
    site.fleet.refuses = False
    site.wait(61)
    assert sorted(namespace for _, namespace in site.fleet.effects) == ["a", "b", "c"]


def test_jobs_of_one_namespace_have_one_share_however_many_they_are() -> None:
    site = Site()
    for _ in range(8):
        site.add("a")
    for index in range(len(site.tenants)):
        breaks(site, index, 80, 79)
    assert [namespace for _, namespace in site.fleet.effects].count("a") == 1


def test_a_cordon_counts_although_its_node_was_replaced_or_given_back_since() -> None:
    for undo in (Fleet.replace, Fleet.uncordon):
        site = Site()
        breaks(site, 0, 80, 79)
        (name,) = [name for name, node in site.fleet.nodes.items() if node.unschedulable]
        undo(site.fleet, name)
        breaks(site, 1, 80, 79)
        assert [namespace for _, namespace in site.fleet.effects] == ["a"]
        site.wait(3601)
        breaks(site, 1, 80, 79)
        assert [namespace for _, namespace in site.fleet.effects] == ["a", "a"]


def test_a_cordon_that_is_still_to_be_done_counts_as_one() -> None:
    site = Site()
    site.fleet.refuses = True
    for index in (0, 1, 2, 3):
        breaks(site, index, 80, 79)
    site.fleet.refuses = False
    site.wait(61)
    assert sorted(namespace for _, namespace in site.fleet.effects) == ["a", "b", "c"]


def test_what_could_not_be_done_in_time_is_never_done() -> None:
    site = Site()
    site.fleet.refuses = True
    breaks(site, 0, 80, 79)
    site.wait(int(TOO_LATE.total_seconds()) + 1)
    site.fleet.refuses = False
    site.wait(61)
    assert site.fleet.effects == []


def dies_on_the_way(writes: int) -> Site:
    """A job's GPU breaks, and the operator dies after so many writes."""
    site = Site()
    tenant = site.one(0)
    tenant.settle()
    tenant.start_all()
    tenant.settle()
    tenant.end(1, 80, xid=79)
    tenant.kill_at = tenant.writes + writes
    with contextlib.suppress(Killed):
        tenant.settle(passes=6)
    tenant.kill_at = None
    return site


@pytest.mark.parametrize("writes", range(1, 7))
def test_an_operator_that_dies_on_the_way_to_a_cordon_leaves_it_to_the_next_which_does_it_once(writes: int) -> None:
    site = dies_on_the_way(writes)
    site.wait(11)
    assert len(site.fleet.effects) == 1
    assert len(site.fleet.ledger) == 1


def test_what_a_deleted_job_entered_and_never_did_counts_and_is_taken_up_by_no_other_of_its_name() -> None:
    site = dies_on_the_way(1)
    (entry,) = site.fleet.ledger.values()
    gone = site.tenants[0]
    assert not gone.job.status.cordoned_nodes
    site.renew(0)
    again = len(site.tenants) - 1
    site.tenants[again].shift = gone.shift
    breaks(site, again, 80, 79)
    assert [node.name for node in site.tenants[again].job.status.avoided_nodes] == [entry.node]
    assert site.tenants[again].job.name == entry.job.rpartition("/")[2]
    assert site.fleet.effects == []
    site.wait(3601)
    breaks(site, again, 80, 79)
    assert [namespace for _, namespace in site.fleet.effects] == ["a"]
