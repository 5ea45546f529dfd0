"""What to do: commands that can be copied as they stand, with the names that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer
from situations import NOW, PREEMPTION, condition, facts, job, line, node, output, pod, unplaced
from test_explain_situations import ALL

from oarlock.cli.main import app
from oarlock.explain import explain
from oarlock.explain.advice import advice, pieces
from oarlock.explain.causes import Cause, Part
from oarlock.explain.prose import prose
from oarlock.facts import Facts

NAMES = ("JOB", "NODE", "KEY", "ATTEMPT")


@pytest.mark.parametrize("cause", Cause)
def test_no_name_is_left_to_be_filled_in_where_it_is_known(cause: Cause) -> None:
    said = advice(cause, job="flux -n team", nodes=("node-2",), attempt=2, taint="spot")
    assert not [name for name in NAMES if name in said]


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_stands_in_a_part_of_the_table(cause: Cause) -> None:
    assert isinstance(cause.part, Part)


@pytest.mark.parametrize("cause", [cause for cause in Cause if "`oarlock " in cause.next])
def test_a_command_of_ours_is_one_that_the_command_line_takes(cause: Cause) -> None:
    told = list(pieces(advice(cause, job="flux -n team", nodes=("node-2",), attempt=2)))
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command in [one for one in told if isinstance(one, list) and one[0] == "oarlock"]:
        verbs[command[1]].make_context(command[1], command[2:])  # fails for what it does not take


def test_a_command_for_several_nodes_stands_once_for_each() -> None:
    said = advice(Cause.NOT_ENOUGH_HEALTHY_NODES, job="flux", nodes=("node-2", "node-5"))
    assert "(`oarlock uncordon node-2`, `oarlock uncordon node-5`)" in said


def test_without_a_known_node_the_sentence_speaks_of_the_node() -> None:
    assert advice(Cause.NODE_LOST, job="flux", nodes=("",)).endswith("Look at the node: power, kernel, kubelet.")


FORGED = ("$(touch /tmp/owned)", "node-2; reboot", "`reboot`", "-rf", "a b")


@pytest.mark.parametrize("name", FORGED)
def test_no_name_that_kubernetes_does_not_allow_gets_into_a_command(name: str) -> None:
    """The job's own program writes both files: `oarlock why --path`, the report and the page say what they tell."""
    lines = [line("Fault", rank=0, node=name, reason=reason, message="m") for reason in ("NodeCordoned", "Killed")]
    for one in lines:
        known = Facts(namespace=name, name=name, time=NOW, output=output(one))
        story = explain(known)
        told = [story.now.next, *(fault.next for each in story.attempts for fault in each.faults)]
        assert [said for said in told if name in said] == []
    known = Facts(namespace=name, name="flux", time=NOW, job=facts(job("Suspended")).job)
    assert explain(known).now.next.startswith("`oarlock resume JOB` goes on")


def test_a_taint_that_a_message_names_is_quoted() -> None:
    said = advice(Cause.TAINTED, job="flux", nodes=("node-2",), taint="$(reboot)")
    assert "`kubectl taint node node-2 '$(reboot)'-`" in said


def test_the_job_of_a_command_is_in_its_own_namespace() -> None:
    suspended = facts(job("Suspended"))
    assert explain(suspended).now.next.startswith("`oarlock resume flux -n team` goes on")


@pytest.mark.parametrize("name", ALL)
def test_a_command_stands_in_one_line_of_the_answer_for_people(name: str) -> None:
    story = explain(ALL[name][0])
    commands = [part for place, part in enumerate(story.now.next.split("`")) if place % 2 and len(part) < 95]
    assert [one for one in commands if one not in prose(story)] == []


def avoiding(*names: str) -> Facts:
    """A gang of which two pods find no node, since its job keeps off these."""
    told = "avoided: node-2 (GPUFault in attempt 1). Repair one and have it used again (oarlock uncordon node-2). 0/3"
    avoided = [{"name": name, "reason": f"GPUFault in attempt {number}"} for number, name in enumerate(names, 1)]
    lacking = condition("Scheduled", "False", "NotEnoughHealthyNodes", told)
    left = unplaced(f"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.{PREEMPTION}")
    pods = [{**left, "metadata": pod(rank, attempt=2)["metadata"]} for rank in (0, 1)]
    nodes = [node(f"node-{number}") for number in (1, 2, 3)]
    return facts(job("Recovering", lacking, attempt=2, avoidedNodes=avoided), pods=pods, nodes=nodes)


def test_too_few_healthy_nodes_are_a_short_sentence_and_a_line_for_each_node() -> None:
    now = explain(avoiding("node-2", "node-5")).now
    assert now.message == "2 pods have no node, and the job keeps off 2 nodes"
    assert now.details == (
        "node-2 is avoided: GPUFault in attempt 1",
        "node-5 is avoided: GPUFault in attempt 2",
        "of 3 nodes none takes a pod: 3 nodes didn't match Pod's node affinity/selector",
    )
    assert "`oarlock uncordon node-2`, `oarlock uncordon node-5`" in now.next
    assert "- node-5 is avoided: GPUFault in attempt 2" in prose(explain(avoiding("node-2", "node-5")))


def test_a_soft_avoidance_is_not_what_keeps_pods_from_nodes() -> None:
    known = avoiding("node-2", "node-5")
    assert known.job
    soft = [{"name": "node-5", "strict": False}]
    status = {**known.job["status"], "avoidedNodes": [*known.job["status"]["avoidedNodes"][:1], *soft]}
    assert explain(replace(known, job={**known.job, "status": status})).now.message.endswith("keeps off node-2")
