"""Rank 0's pod is told what was decided about the attempts before, and no other pod is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from jobs import START as NOW
from jobs import job, report, spec
from made_pods import environment
from worlds import World

from oarlock_api.contract.history import MAX_NOTES, OperatorNotes, parse_notes
from oarlock_api.contract.kept_spec import parse_settings
from oarlock_api.contract.names import pod_name
from oarlock_api.history import Attempt, AvoidedNode, CordonedNode, LastFault, Round
from oarlock_api.status import TrainingJobStatus
from oarlock_operator.manifests.history import notes
from oarlock_operator.model.observation import Ending


def status(**changes: object) -> TrainingJobStatus:
    at = [NOW + timedelta(hours=hour) for hour in range(4)]
    attempts = (
        Attempt(number=1, start_time=at[0], end_time=at[1], end_reason="GPUFault", node_names=("node-0", "node-1")),
        Attempt(number=2, start_time=at[1], end_time=at[2], end_reason="Suspended", resumed_from_step=100),
        Attempt(number=3, start_time=at[3]),
    )
    fault = LastFault.model_validate(
        {
            "time": at[1] - timedelta(seconds=3),
            "class": "GPU",
            "nodeName": "node-1",
            "xid": 79,
            "action": "started again, elsewhere (rule fell-off)",
            "evidence": ("GPU 3 has fallen off the bus", "xid: 79 at 12:00"),
        }
    )
    avoided = (
        AvoidedNode(name="node-1", reason="GPUFault in attempt 1"),
        AvoidedNode(name="node-9", reason="NodeLost in attempt 10"),
    )
    cordoned = (CordonedNode(name="node-1", reason="GPUFault in attempt 1", attempt=1),)
    told = {"attempts": attempts, "last_fault": fault, "avoided_nodes": avoided, "cordoned_nodes": cordoned}
    return TrainingJobStatus(attempt=3, **{**told, **changes})  # type: ignore[arg-type]


def test_a_decision_says_what_befell_the_attempt_by_which_rule_and_what_became_of_its_nodes() -> None:
    first, second = parse_notes(notes(status(), uid="uid", image="trainer:1").to_json()).decisions
    assert (first.attempt, first.reason, first.job) == (1, "GPUFault", "uid")
    assert first.message == "GPU 3 has fallen off the bus"
    assert first.data["fault"]["action"] == "started again, elsewhere (rule fell-off)"
    assert first.data["avoidedNodes"] == {"node-1": "GPUFault in attempt 1"}
    assert first.data["cordonedNodes"] == {"node-1": "GPUFault in attempt 1"}
    assert first.data["nodeNames"] == ["node-0", "node-1"]
    assert (second.attempt, second.reason, second.message) == (2, "Suspended", "")
    assert second.data["resumedFromStep"] == 100
    assert "fault" not in second.data


def test_an_attempt_that_went_on_after_a_fault_did_not_end_for_it() -> None:
    fault = LastFault.model_validate(
        {"time": NOW + timedelta(minutes=90), "class": "Hang", "evidence": ("rank 3 hangs",)}
    )
    ended = Round(attempt=2, round=1, reason="Hang", ended_time=fault.time)
    second = parse_notes(notes(status(last_fault=fault, rounds=(ended,)), uid="uid", image="i").to_json()).decisions[1]
    assert (second.reason, second.message) == ("Suspended", "")
    ended = ended.model_copy(update={"reason": "Suspended"})
    told = parse_notes(notes(status(last_fault=fault, rounds=(ended,)), uid="uid", image="i").to_json()).decisions[1]
    assert told.message == "rank 3 hangs", "a round that ended its attempt is what that ended for"


def test_they_are_bounded_and_kubernetes_expands_nothing_in_them() -> None:
    wide = tuple(
        Attempt(
            number=n, start_time=NOW, end_reason="$(HOME)", node_names=tuple(f"node-{n}-{'x' * 200}" for n in range(32))
        )
        for n in range(1, 3)
    )
    told = notes(status(attempts=wide), uid="uid", image="trainer:1").to_json()
    assert len(told) <= MAX_NOTES
    assert "$" not in notes(status(attempts=(Attempt(number=1, end_reason="$(HOME)"),)), uid="u", image="$i").to_json()
    assert parse_notes(told).image == "trainer:1"
    assert parse_notes("") == parse_notes("[1]") == OperatorNotes()


@dataclass
class Keeping(World):
    """A world that keeps the pods' manifests."""

    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_pod(self, manifest: dict[str, Any]) -> None:
        self.manifests[manifest["metadata"]["name"]] = manifest
        super().create_pod(manifest)


def test_rank_0_of_the_next_attempt_hears_of_the_one_that_failed_and_the_other_pods_do_not() -> None:
    world = Keeping(job=job(spec=spec()))
    world.settle()
    world.start_all()
    world.settle()
    name = pod_name("flux", 1, 1)
    pod = world.pods[name]
    world.pods[name] = replace(pod, ready=False, ending=Ending(81, report=report(pod, code=81, at=world.now)))
    world.settle()
    world.kubelets()
    world.now += timedelta(seconds=400)
    world.settle()
    first, second, other = (environment(world.manifests[pod_name("flux", *who)]) for who in ((1, 0), (2, 0), (2, 1)))
    assert parse_notes(first["OARLOCK_HISTORY"]) == OperatorNotes(image="trainer:test")
    (decision,) = parse_notes(second["OARLOCK_HISTORY"]).decisions
    assert decision.attempt == 1
    assert decision.reason == world.job.status.attempts[0].end_reason
    assert decision.data["fault"]["action"].startswith("started again")
    assert "OARLOCK_HISTORY" not in other


def test_rank_0_alone_is_told_what_it_is_to_keep_of_the_spec_without_what_looks_secret() -> None:
    world = Keeping(job=job(spec=spec(pod={"env": [{"name": "MY_TOKEN", "value": "abc$(HOME)"}]})))
    world.settle()
    first, other = (environment(world.manifests[pod_name("flux", 1, rank)]) for rank in (0, 1))
    told = parse_settings(first["OARLOCK_SPEC"])
    assert told["nodes"] == world.job.spec.nodes
    assert told["pod"]["env"] == [{"name": "MY_TOKEN", "value": "(struck out)"}]
    assert "OARLOCK_SPEC" not in other
