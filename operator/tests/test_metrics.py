"""Metrics tell what became true, once; series of a job go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from jobs import job, report, spec
from worlds import World

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.status import TrainingJobStatus
from oarlock_operator import metrics
from oarlock_operator.faults.classify import Budget, Fault, classify
from oarlock_operator.model.node_maintenance import Maintenance
from oarlock_operator.model.observation import Defaults, Ending, Pod
from oarlock_operator.model.observed_nodes import Node

AT_FIRST = {(seen.name, frozenset(seen.labels.items())) for each in metrics.REGISTRY.collect() for seen in each.samples}
"""What is shown before any test has counted."""
ENDINGS = {
    **{f"code {code:d}": {"ending": Ending(code=code)} for code in (*ExitCode, 1, 137)},
    "out of memory": {"ending": Ending(code=137, reason="OOMKilled")},
    "refused": {"ending": Ending(code=None, reason="UnexpectedAdmissionError")},
    "failed": {"ending": Ending(code=None)},
    "gone": {"gone": True},
    "lost": {"node_lost": True},
}
CHARGED = [
    fault
    for name, how in ENDINGS.items()
    if (fault := classify(Pod(name=name, uid="a", attempt=1, rank=0, **how)))
    and fault.budget in (Budget.APPLICATION, Budget.INFRASTRUCTURE)
]


def began_at_zero(name: str, **labels: str) -> bool:
    return (name, frozenset(labels.items())) in AT_FIRST


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.fixture(autouse=True)
def job_is_forgotten() -> Iterator[None]:
    yield
    metrics.forget("default", "flux")


class Counted(World):
    """A world whose status writes are counted, as the operator does."""

    def write_status(self, status: TrainingJobStatus) -> None:
        before = self.job.status
        super().write_status(status)
        metrics.written("default", "flux", before, self.job.status)


def test_a_round_is_counted_once_and_what_is_known_of_it_later_is_observed_once() -> None:
    labels, rung = {"rung": "RestartRanks", "reason": "Hang"}, {"rung": "RestartRanks"}
    began = sample("oarlock_rounds_total", **labels), sample("oarlock_recovery_rung_seconds_sum", **rung)
    lost, restarts = (
        sample("oarlock_steps_lost_total"),
        sample("oarlock_restarts_total", budget="application", reason="Hang"),
    )
    world = Counted()
    world.running(step=20)
    world.end_round(83, step=20, resumed_step=None)
    for known in ({}, {"resumed_step": 15}, {"down_seconds": 1.5}, {}):
        world.learn(**known)
        world.step(20)
        world.settle()
    ended = sample("oarlock_rounds_total", **labels), sample("oarlock_recovery_rung_seconds_sum", **rung)
    assert ended == (began[0] + 1, began[1] + 1.5)
    assert sample("oarlock_steps_lost_total") == lost + 5
    assert sample("oarlock_restarts_total", budget="application", reason="Hang") == restarts, (
        "no gang was started again"
    )
    assert began_at_zero("oarlock_rounds_total", **labels)


def of_other_members() -> Counted:
    """A gang of three nodes with a spare, which may go on with fewer; its pod 2 is lost."""
    training = spec().to_manifest(defaults=False)["training"] | {"effectiveBatch": 12}
    wanted = spec(nodes=3, spares=1, elastic={"minNodes": 1}, training=training, recovery={"inPlace": "Auto"})
    world = Counted(job=job(spec=wanted), defaults=Defaults(trainer_image="trainer:test", keys=(b"k" * 32,)))
    world.running(step=20)
    node = world.pod(2).node
    world.nodes[node] = Node(name=node, ready=False, unreachable=True, boot_id="1")
    world.one_pass()
    return world


def goes_on(world: Counted, *members: int, code: int = 82, rank: int = 2, **known: object) -> None:
    """The round ended; with these pods the next one has made a step, three seconds after the fault."""
    world.end_round(code, rank=rank, why="told", step=20, resumed_step=15, **known)
    number = world.job.status.round + 1
    for down in (None, 3.0, 3.0):
        world.learn(down_seconds=down)
        world.step(21)
        assert world.progress is not None
        world.progress = replace(world.progress, round=number, members=members)
        world.settle()


def of_rung(rung: str, reason: str) -> tuple[float, float, float]:
    return (
        sample("oarlock_rounds_total", rung=rung, reason=reason),
        sample("oarlock_recovery_rung_seconds_count", rung=rung),
        sample("oarlock_recovery_rung_seconds_sum", rung=rung),
    )


@pytest.mark.parametrize(
    ("rung", "members", "known"),
    [("ReplacePod", (), {}), ("TakeSpare", (0, 1, 3), {"spare": True}), ("Shrink", (0, 1), {"nodes": 2})],
)
def test_how_a_gang_went_on_without_a_lost_pod_is_counted_and_its_time_observed_once(
    rung: str, members: tuple[int, ...], known: dict[str, object]
) -> None:
    rounds, observed, seconds = of_rung(rung, "NodeLost")
    goes_on(of_other_members(), *members, lost_pod=True, **known)
    assert of_rung(rung, "NodeLost") == (rounds + 1, observed + 1, seconds + 3.0)
    assert began_at_zero("oarlock_rounds_total", rung=rung, reason="NodeLost")


def test_growing_is_counted_and_observed_once_and_is_no_fault() -> None:
    world = of_other_members()
    goes_on(world, 0, 1, lost_pod=True, nodes=2)
    (rounds, observed, seconds), faults = (
        of_rung("Grow", "MoreNodes"),
        sample("oarlock_faults_total", fault_class="NodeLost"),
    )
    goes_on(world, code=86, rank=0, nodes=3)
    assert of_rung("Grow", "MoreNodes") == (rounds + 1, observed + 1, seconds + 3.0)
    assert sample("oarlock_faults_total", fault_class="NodeLost") == faults
    assert began_at_zero("oarlock_rounds_total", rung="Grow", reason="MoreNodes")


def test_a_restart_is_counted_once_by_budget_and_reason_and_its_stages_are_observed() -> None:
    labels = {"budget": "application", "reason": "ApplicationError"}
    restarts, faults = (
        sample("oarlock_restarts_total", **labels),
        sample("oarlock_faults_total", fault_class="Application"),
    )
    observed = sample("oarlock_recovery_seconds_count", stage="first_step")
    attempts = sample("oarlock_recovery_rung_seconds_count", rung="Attempt")
    lost = sample("oarlock_steps_lost_total")
    world = Counted()
    world.running(step=20, saved=10)
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.running(step=11, resumed=10)
    assert sample("oarlock_restarts_total", **labels) == restarts + 1
    assert sample("oarlock_faults_total", fault_class="Application") == faults + 1
    assert sample("oarlock_recovery_seconds_count", stage="first_step") == observed + 1
    assert sample("oarlock_recovery_rung_seconds_count", rung="Attempt") == attempts + 1
    assert sample("oarlock_steps_lost_total") == lost + 10


def test_a_move_off_a_marked_node_is_neither_a_fault_nor_a_recovery() -> None:
    world = Counted(spares=True)
    world.running(step=20, saved=10)
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.running(step=11, resumed=10)
    faults = sample("oarlock_faults_total", fault_class="Application")
    observed = sample("oarlock_recovery_seconds_count", stage="first_step")
    world.nodes = {"node-1": Node(name="node-1", maintenance=Maintenance("cordoned", enforced=True))}
    world.settle()
    world.kubelets()
    world.nodes = {}
    world.running(step=12, resumed=11)
    assert world.job.status.attempts[-1].reason == "NodeMarked"
    assert sample("oarlock_faults_total", fault_class="Application") == faults
    assert sample("oarlock_recovery_seconds_count", stage="first_step") == observed


def test_a_kubelets_own_reasons_share_one_label() -> None:
    assert metrics._bounded("SomethingNewInKubernetes") == "Other"
    assert metrics._bounded("NodeLost") == "NodeLost"


def test_a_living_job_has_one_phase_and_a_finished_one_has_no_series() -> None:
    job = {"namespace": "default", "training_job": "flux"}
    world = Counted()
    world.running(step=20)
    assert sample("oarlock_job_phase", **job, phase="Running") == 1
    assert sample("oarlock_job_phase", **job, phase="Starting") == 0
    assert sample("oarlock_job_last_progress_timestamp_seconds", **job) > 0
    for rank in (0, 1):
        world.end(rank, 0)
    world.settle()
    assert metrics.REGISTRY.get_sample_value("oarlock_job_phase", {**job, "phase": "Succeeded"}) is None
    assert sample("oarlock_jobs_finished_total", phase="Succeeded", reason="AllRanksSucceeded") >= 1


def test_a_new_operator_shows_a_job_that_only_waits() -> None:
    world = Counted(hindrance="quota exceeded")
    world.settle()
    metrics.forget("default", "flux")  # as with the process
    metrics.seen("default", "flux", world.job.status)
    assert (
        sample("oarlock_job_phase", namespace="default", training_job="flux", phase=world.job.status.phase or "") == 1
    )


@pytest.mark.parametrize("fault_class", FailureClass)
def test_a_first_fault_is_a_rise_from_nothing(fault_class: FailureClass) -> None:
    assert began_at_zero("oarlock_faults_total", fault_class=fault_class)


@pytest.mark.parametrize("xid", ["none", "1", "13", "255", "Other"])
def test_a_first_restart_by_an_xid_is_a_rise_from_nothing(xid: str) -> None:
    assert began_at_zero("oarlock_gpu_faults_total", xid=xid, verdict="RestartProcess")


@pytest.mark.parametrize("fault", CHARGED, ids=lambda fault: f"{fault.pod.name}, {fault.reason}")
def test_a_first_restart_at_the_cost_of_a_budget_is_a_rise_from_nothing(fault: Fault) -> None:
    assert began_at_zero("oarlock_restarts_total", budget=fault.budget, reason=metrics._bounded(fault.reason))


def test_goodput_is_what_was_not_wasted_of_the_gpu_time_so_far() -> None:
    world = Counted()
    world.running(step=20, saved=10)
    world.end(1, 1)
    world.settle()
    world.kubelets()
    world.settle()
    status = world.job.status
    assert status.gpu_seconds > 0
    ratio = sample("oarlock_job_goodput_ratio", namespace="default", training_job="flux")
    assert ratio == pytest.approx(1 - status.wasted_gpu_seconds / status.gpu_seconds)


def test_a_gpus_fault_is_counted_by_its_xid_also_where_it_ends_the_job() -> None:
    world = Counted(job=job(spec=spec(recovery={"maxInfrastructureRestarts": 0})))
    world.running()
    faults = sample("oarlock_gpu_faults_total", xid="79", verdict="ReplaceNode")
    world.end(1, 80, xid=79)
    world.settle()
    world.kubelets()
    world.settle()
    assert world.job.status.phase == "Failed"
    assert sample("oarlock_gpu_faults_total", xid="79", verdict="ReplaceNode") == faults + 1


def test_a_cause_that_is_told_late_is_counted_and_its_victims_are_not() -> None:
    world = Counted()
    world.running()
    gpu, peer = (sample("oarlock_faults_total", fault_class=name) for name in ("GPU", "PeerLost"))
    world.end(0, 82)
    world.one_pass()
    world.now += timedelta(seconds=2)
    world.one_pass()
    world.end(1, 80, attempt=1, xid=79)
    world.settle()
    assert sample("oarlock_faults_total", fault_class="GPU") == gpu + 1
    assert sample("oarlock_faults_total", fault_class="PeerLost") == peer


def test_a_fault_whose_victims_are_counted_later_is_still_one() -> None:
    world = Counted()
    world.running()
    faults = sample("oarlock_faults_total", fault_class="GPU")
    world.end(1, 80, xid=79)
    world.one_pass()
    world.end(0, 82, attempt=1)
    world.settle()
    assert world.job.status.last_fault is not None
    assert sample("oarlock_faults_total", fault_class="GPU") == faults + 1


def test_a_restart_counts_also_where_a_checkpoint_has_forgotten_the_one_before() -> None:
    labels = {"budget": "infrastructure", "reason": "GPUFault"}
    world = Counted()
    world.running(step=5, saved=5)
    before = sample("oarlock_restarts_total", **labels)
    for step in (10, 20):
        world.end(1, 81)
        world.settle()
        world.kubelets()
        world.running(step=step, resumed=step - 5, saved=step)
    assert world.job.status.restart_count == 2
    assert sample("oarlock_restarts_total", **labels) == before + 2


def test_steps_that_were_done_after_the_last_look_are_lost_too() -> None:
    world = Counted()
    world.running(step=20, saved=10)
    lost = sample("oarlock_steps_lost_total")
    pod = world.pods["flux-1-1"]
    said = replace(report(pod, code=1, at=world.now), step=38)
    world.pods["flux-1-1"] = replace(pod, ending=Ending(1, report=said))
    world.settle()
    world.kubelets()
    world.running(step=11, resumed=10)
    assert world.job.status.attempts[-1].lost_steps == 28
    assert sample("oarlock_steps_lost_total") == lost + 28
