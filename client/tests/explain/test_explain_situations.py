"""What explain makes of jobs in trouble: recorded from real components (facts/), or built with their words (situations)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from situations import (
    CLOCK,
    HUNG,
    JOB,
    LOST_PEER,
    NOW,
    PREEMPTION,
    SITUATIONS,
    UID,
    condition,
    ended,
    event,
    facts,
    job,
    last_fault,
    line,
    node,
    output,
    pod,
    report,
    unplaced,
)  # fmt: skip

from oarlock.explain import explain
from oarlock.explain.causes import Cause
from oarlock.explain.prose import prose
from oarlock.facts import Facts

RECORDED = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "facts").glob("*.json"))
}
ALL: dict[str, tuple[Facts, str, str]] = {
    **{name: (Facts.of(raw["facts"]), raw["cause"], raw["node"]) for name, raw in RECORDED.items()},
    **SITUATIONS,
}
SCHEMA = json.loads((Path(__file__).parents[3] / "docs/why-v1.schema.json").read_text())
CALM = {Cause.SUSPENDED.value}


@pytest.mark.parametrize("name", ALL)
def test_the_cause_and_the_node_of_a_trouble_are_named(name: str) -> None:
    known, cause, node = ALL[name]
    story = explain(known)
    found = (story.now.cause, "") if story.trouble is None else (story.trouble.cause, story.trouble.node)
    assert found == (cause, node)


@pytest.mark.parametrize("name", [name for name, (_, cause, _) in ALL.items() if cause not in CALM])
def test_a_trouble_rests_on_somebodys_own_words_and_says_what_to_do(name: str) -> None:
    trouble = explain(ALL[name][0]).trouble
    assert trouble is not None
    assert trouble.evidence
    assert all(one.source and one.text for one in trouble.evidence)
    assert trouble.next
    assert "NODE" not in trouble.next.replace("`kubectl taint node NODE KEY-`", "") or not trouble.node


@pytest.mark.parametrize("name", ALL)
def test_the_answer_for_people_has_a_chain_a_now_and_a_next_in_at_most_25_lines(name: str) -> None:
    said = prose(explain(ALL[name][0])).splitlines()
    assert 5 <= len(said) <= 25
    assert max(map(len, said)) <= 110
    assert [line.split()[0] for line in said if line.startswith(("Now ", "Next "))] == ["Now", "Next"]


@pytest.mark.parametrize("name", ALL)
def test_the_answer_for_programs_is_as_its_schema_says(name: str) -> None:
    told = json.loads(json.dumps(explain(ALL[name][0]).to_json()))
    assert told["version"] == 1
    check(told, SCHEMA, "")


@pytest.mark.parametrize("name", ALL)
def test_facts_survive_a_file(name: str) -> None:
    known = ALL[name][0]
    assert explain(Facts.of(json.loads(json.dumps(known.to_json())))) == explain(known)


TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "array": list, "object": dict}


def check(value: Any, schema: dict[str, Any], where: str) -> None:
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    assert isinstance(value, TYPES[schema["type"]]), where
    if schema["type"] == "array":
        for place, one in enumerate(value):
            check(one, schema["items"], f"{where}[{place}]")
    if schema["type"] == "object":
        assert set(schema["required"]) <= set(value), where
        for key, one in value.items():
            assert key in schema["properties"], f"{where}.{key}"
            check(one, schema["properties"][key], f"{where}.{key}")


def test_a_hang_names_the_rank_that_cannot_run_and_its_stack() -> None:
    trouble = explain(SITUATIONS["a hang with a culprit"][0]).trouble
    assert trouble is not None
    assert (trouble.first_rank, trouble.rank) == (3, 1)
    assert trouble.evidence[0].text == HUNG


def test_a_budget_that_is_used_up_is_told_beside_what_used_it_up() -> None:
    story = explain(SITUATIONS["budget used up by a program"][0])
    assert story.now.cause == "ApplicationRestartsExhausted"
    assert story.trouble is not None
    assert story.now.next.startswith(story.trouble.next)


def test_a_job_that_trains_again_is_well_and_its_last_fault_is_still_told() -> None:
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": "GPUFault", "nodeNames": ["node-1", "node-2"]},
        {
            "number": 2,
            "startTime": "2026-11-23T10:31:00Z",
            "reason": "GPUFault",
            "nodeNames": ["node-1", "node-3"],
            "resumedFromStep": 400,
            "lostSteps": 7,
            "stageMilliseconds": {"detect": 600, "drain": 400, "schedule": 100, "start": 700, "firstStep": 3700},
        },
    ]
    fault = last_fault(
        "GPU", "pod flux-1-1 on node-2: XID 79", nodeName="node-2", rank=1, gpu={"index": 3}, xid=79, victims=1
    )
    progress = {"step": 410, "totalSteps": 1000}
    story = explain(
        facts(
            job(
                "Running",
                condition("Degraded", "False", "AsExpected"),
                attempt=2,
                attempts=attempts,
                lastFault={**fault, "verdict": "ReplaceNode"},
                progress=progress,
                cordonedNodes=[
                    {"name": "node-2", "reason": "GPUFault in attempt 1", "doneTime": "2026-11-23T10:31:01Z"}
                ],
            )
        )
    )
    assert (story.now.phase, story.now.cause, story.now.next) == ("Running", "Training", Cause.TRAINING.next)
    assert story.trouble is not None
    assert (story.trouble.cause, story.trouble.node, story.trouble.gpu, story.trouble.attempt) == (
        "GPUFault",
        "node-2",
        3,
        1,
    )
    assert [one.what for one in story.chain] == [
        "Created",
        "Attempt",
        "GPUFault",
        "Attempt",
        "NodeCordoned",
        "Training",
    ]
    assert "7 steps are done again" in story.chain[-1].text
    assert story.chain[-1].time == "2026-11-23T10:31:04.900Z"


def test_a_fault_that_spares_the_gpu_is_not_told_as_a_broken_gpu() -> None:
    fault = last_fault(
        "GPU", "pod flux-1-1 on node-2: XID 94", nodeName="node-2", rank=1, verdict="RestartProcess", xid=94
    )
    attempts = [{"number": 1, "startTime": "2026-11-23T10:00:00Z", "endReason": "GPUFault"}]
    story = explain(facts(job("Recovering", attempts=attempts, lastFault=fault)))
    assert story.trouble is not None
    assert story.trouble.cause == "GPUProcessFault"


def test_an_attempt_of_which_only_an_event_is_left_is_told_by_the_event() -> None:
    said = "pod flux-1-1 on node-2: rank 8: KeyError: 'mask'; 1 peers lost it. Attempt 2 starts in 12 s."
    attempts = [
        {"number": number, "startTime": f"2026-11-23T10:0{number}:00Z", "endReason": "ApplicationError"}
        for number in (1, 2)
    ]
    fault = last_fault("Application", "pod flux-2-0 on node-1: rank 0: ValueError", nodeName="node-1", rank=0)
    story = explain(
        facts(
            job("Recovering", attempt=3, attempts=attempts, lastFault=fault), events=[event("ApplicationError", said)]
        )
    )
    assert [(one.number, one.faults[0].node) for one in story.attempts if one.faults] == [(1, "node-2"), (2, "node-1")]


def test_the_fault_of_a_round_ended_neither_the_attempt_that_goes_on_nor_the_one_before() -> None:
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:01:00Z", "endReason": "GPUFault"},
        {"number": 2, "startTime": "2026-11-23T10:31:00Z"},
    ]
    fault = last_fault(
        "Hang", "pod flux-2-0 on node-1: no step", nodeName="node-1", rank=0, time="2026-11-23T10:40:00Z"
    )
    rounds = [{"attempt": 2, "round": 1, "reason": "Hang", "endedTime": "2026-11-23T10:40:00Z"}]
    story = explain(facts(job("Running", attempt=2, attempts=attempts, lastFault=fault, rounds=rounds)))
    assert {each.number: [one.cause for one in each.faults] for each in story.attempts} == {1: [], 2: []}
    assert story.trouble
    assert story.trouble == story.attempts[1].rounds[0].fault
    attempts[1]["endReason"] = "Hang"
    story = explain(facts(job("Recovering", attempt=3, attempts=attempts, lastFault=fault, rounds=rounds)))
    assert [one.cause for one in story.attempts[1].faults] == ["Hang"], "a rule made a new attempt of it"


def test_a_victims_pod_that_outlives_the_culprits_hides_nothing_that_the_event_says() -> None:
    said = "pod flux-1-1 on node-2: rank 8 was killed by SIGKILL: out of memory; 1 peers lost it. Attempt 2 starts."
    attempts = [
        {"number": 1, "startTime": "2026-11-23T10:01:00Z", "endReason": "ApplicationError"},
        {"number": 2, "startTime": "2026-11-23T10:31:00Z", "endReason": "GPUFault"},
    ]
    victim = ended(report(82, "lost a peer: rank 1's agent left", rank=0), node="node-1")
    later = last_fault("GPU", "XID 79", nodeName="node-3", rank=1, time="2026-11-23T10:40:00Z")
    story = explain(
        facts(
            job("Recovering", attempt=3, attempts=attempts, lastFault=later),
            pods=[victim],
            events=[event("ApplicationError", said)],
        )
    )
    first = story.attempts[0].faults
    assert [(one.cause, one.node) for one in first] == [("ProcessKilled", "node-2"), ("PeerLost", "node-1")]


def test_pods_that_left_because_somebody_suspended_the_job_met_no_fault() -> None:
    attempts = [{"number": 1, "startTime": "2026-11-23T10:01:00Z", "endReason": "Suspended"}]
    left = ended(report(86, "left on request", rank=0), node="node-1")
    story = explain(facts(job("Suspended", attempts=attempts), pods=[left]))
    assert story.attempts[0].faults == ()


def test_reports_and_lines_of_an_earlier_job_in_the_same_output_are_left_out() -> None:
    older = report(83, HUNG, at="2026-11-22T09:00:00Z")
    lines = [{**line("Fault", rank=1, reason="Hang", message=HUNG), "job": "another"}]
    story = explain(facts(job("Running"), pods=[pod(0, node="node-1")], output=output(*lines, reports=[older])))
    assert story.trouble is None


def test_a_report_of_another_pod_is_not_believed() -> None:
    forged = ended(report(87, CLOCK), node="node-2")
    forged["metadata"]["uid"] = "another"
    trouble = explain(facts(job("Recovering"), pods=[forged])).trouble
    assert trouble is not None
    assert (trouble.cause, trouble.exit_code) == ("PreflightFailed", 87)


def test_a_history_alone_tells_decisions_and_where_it_went_on() -> None:
    story = explain(
        facts(
            None,
            output=output(
                line("AttemptStarted", rank=0, node="node-1"),
                line("Fault", rank=1, node="node-2", reason="Hang", message=HUNG, time="10:10:00"),
                line(
                    "Decision", time="10:10:05", message="started again, rather elsewhere", data={"rule": "hang-once"}
                ),
                line("AttemptStarted", attempt=2, rank=0, node="node-1", time="10:10:20"),
                line("Resumed", attempt=2, rank=0, node="node-1", time="10:10:30", data={"step": 400}),
                line(
                    "Ended", attempt=2, rank=0, node="node-1", time="10:40:00", reason="Succeeded", data={"step": 1000}
                ),
            ),
        )
    )
    first, second = story.attempts
    assert (first.faults[0].cause, first.faults[0].node) == ("Hang", "node-2")
    assert first.decision == "started again, rather elsewhere (rule hang-once)"
    assert (second.resumed_from_step, second.last_step, second.faults) == (400, 1000, ())
    assert (story.uid, story.now.phase, story.now.cause) == (UID, "Succeeded", "Succeeded")


def test_a_folder_of_which_nothing_is_known_is_said_so() -> None:
    story = explain(facts(None))
    assert (story.now.cause, story.trouble, story.attempts, story.name, story.time) == ("Gone", None, (), JOB, NOW)


def test_an_xid_is_told_as_drivers_write_it_and_not_as_json_writes_numbers() -> None:
    story = explain(ALL["contained"][0])
    assert story.trouble
    assert [one.text for one in story.trouble.evidence if one.source == "probe xid"] == ["94"]


LOST = report(82, LOST_PEER, at="2026-11-23T10:59:59Z")


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (job("Running"), "FindingCause"),
        (job("Running", attempts=[{"number": 1, "startTime": NOW, "endReason": "PeerLost"}]), "PeerLost"),
        (job("Recovering", attempt=2, recovery={"stage": "Drain"}, reason="PeerLost"), "FindingCause"),
        (job("Recovering", attempt=2, recovery={"stage": "Schedule"}, reason="PeerLost"), "PeerLost"),
    ],
    ids=["nothing is judged", "judged", "others still stop", "all have had their say"],
)
def test_a_lost_peer_is_blamed_on_nothing_while_its_cause_may_still_speak(told: dict[str, Any], cause: str) -> None:
    story = explain(facts(told, pods=[ended(LOST, node="node-2"), pod(0, node="node-1")]))
    assert story.trouble
    assert story.trouble.cause == cause
    assert ("network" in story.trouble.next) == (cause == "PeerLost")
    if cause == "FindingCause":
        assert (story.now.cause, story.now.node) == (cause, "")
        assert story.now.message == story.trouble.message
        assert "why is still looked for" in story.now.message


def test_where_nobody_judges_a_lost_peer_stays_what_it_is() -> None:
    lost = report(82, LOST_PEER, at="2026-11-23T10:59:00Z")
    story = explain(facts(job("Running"), pods=[ended(lost, node="node-2")]))
    assert story.now.cause == "PeerLost"


def kept_fault(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"time": f"2026-11-23T10:0{number}:30Z", "class": kind, "nodeName": f"node-{number}", "rank": 1, **more}


TWO_FAULTS = [
    {
        "number": 1,
        "startTime": "2026-11-23T10:01:00Z",
        "endReason": "GPUFault",
        "fault": kept_fault("GPU", 1, gpuIndex=5, xid=79, verdict="ReplaceNode"),
    },
    {"number": 2, "startTime": "2026-11-23T10:02:00Z", "endReason": "Hang", "fault": kept_fault("Hang", 2)},
]
HUNG_LATER = last_fault("Hang", HUNG, nodeName="node-2", rank=1, time="2026-11-23T10:02:30Z")


@pytest.mark.parametrize("said", ["", "pod flux-1-1 on node-1: fallen off the bus; 1 peers lost it. Attempt 2 starts."])
def test_an_earlier_faults_gpu_and_xid_are_known_when_a_second_one_came_and_events_are_gone(said: str) -> None:
    events = [event("GPUFault", said)] if said else []
    story = explain(facts(job("Running", attempt=3, attempts=TWO_FAULTS, lastFault=HUNG_LATER), events=events))
    first = story.attempts[0].faults[0]
    assert (first.cause, first.node, first.rank, first.gpu, first.xid) == ("GPUFault", "node-1", 1, 5, 79)
    assert first.message == (said.partition("; 1 peers")[0] + "; 1 peers lost it" if said else "GPU 5 XID 79")
    assert story.attempts[1].faults[0].message == HUNG, "of the last one more is known"


def test_a_command_about_an_earlier_fault_names_the_jobs_namespace() -> None:
    first = {**TWO_FAULTS[0], "endReason": "ApplicationError", "fault": kept_fault("Application", 1)}
    story = explain(facts(job("Running", attempt=2, attempts=[first, TWO_FAULTS[1]])))
    assert "`oarlock logs flux -n team --attempt 1`" in story.attempts[0].faults[0].next


def test_a_kill_has_one_name_also_where_an_older_operator_wrote_the_status() -> None:
    story = explain(ALL["killed"][0])
    names = {story.attempts[0].end_reason, story.attempts[1].reason, story.attempts[0].faults[0].cause}
    assert names == {"ProcessKilled"}


REFUSED = {
    "name": "node-2",
    "reason": "GPUFault in attempt 2",
    "sinceTime": "2026-11-23T10:40:00Z",
    "notCordoned": "this job had a node cordoned within 3600 s",
}


@pytest.mark.parametrize(
    ("phase", "alone"),
    [("Running", "Nothing: it goes on by itself."), ("Succeeded", "The model is in the output.")],
)
def test_nobody_is_told_to_do_nothing_beside_what_he_should_do(phase: str, alone: str) -> None:
    at = {"name": "node-2", "reason": "GPUFault in attempt 1", "time": "2026-11-23T10:40:00Z"}
    told = job(phase, cordonedNodes=[{**at, "doneTime": at["time"]}])
    task = "node-2 is still cordoned: repair it, then `oarlock uncordon node-2`."
    assert explain(facts(told, nodes=[open_node("node-2")])).now.next == alone
    broken = explain(facts(told, nodes=[node("node-2", cordoned=True)])).now.next
    assert broken.endswith(task)
    assert "Nothing" not in broken


def open_node(name: str, **annotations: str) -> dict[str, Any]:
    return {**node(name), "metadata": {"name": name, "annotations": annotations}}


def test_a_broken_node_that_nobody_cordoned_is_told_with_the_brake_and_what_to_do() -> None:
    told = job("Running", avoidedNodes=[REFUSED], progress={"step": 5, "totalSteps": 9})
    now = explain(facts(told, nodes=[open_node("node-2")])).now
    assert now.message.endswith("step 5 of 9; node-2: broken, and not cordoned")
    assert "this job had a node cordoned within 3600 s" in now.next
    assert "`kubectl cordon node-2`" in now.next


@pytest.mark.parametrize("first", ["", "spec.recovery.cordon is Never; "])
def test_a_node_that_is_broken_as_any_program_may_say_is_to_be_looked_at_and_not_to_be_cordoned(first: str) -> None:
    why = f"{first}its report is only a claim: `reboot` is mounted over it"
    told = job("Running", avoidedNodes=[{**REFUSED, "notCordoned": why}], progress={"step": 5, "totalSteps": 9})
    now = explain(facts(told, nodes=[open_node("node-2")])).now
    assert now.message.endswith("step 5 of 9; node-2: broken, as a program says")
    assert "A program that the site does not vouch for says that a GPU of node-2 is broken" in now.next
    assert "`" not in now.next, "no command, and none that the job has brought"


@pytest.mark.parametrize(
    "known",
    [node("node-2", cordoned=True), open_node("node-2", **{"oarlock.dev/given-back": "2026-11-23T10:41:00+00:00"})],
    ids=["cordoned since", "given back since"],
)
def test_once_a_person_has_seen_to_it_a_node_is_called_broken_no_more(known: dict[str, Any]) -> None:
    now = explain(facts(job("Running", avoidedNodes=[REFUSED]), nodes=[known])).now
    assert "broken" not in f"{now.message} {now.next}"


def keeping_off(name: str) -> dict[str, Any]:
    """A pod that waits, made while its job avoided a node."""
    made = unplaced(
        "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        f"3 Insufficient nvidia.com/gpu.{PREEMPTION}"
    )
    off = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [off]}}
    metadata = {**made["metadata"], "annotations": {"oarlock.dev/avoided": f"node-7,{name}"}}
    return {**made, "metadata": metadata, "spec": {**made["spec"], "affinity": {"nodeAffinity": required}}}


@pytest.mark.parametrize(
    ("avoided", "cordoned", "words"),
    [
        (
            [{"name": "node-2", "reason": "GPUFault in attempt 1"}],
            False,
            "The job avoids node-2 (GPUFault in attempt 1): once it is well, `oarlock uncordon node-2`.",
        ),
        ([], False, "node-2 may be used again: the pods are made anew for it once all of them find room."),
        ([], True, "node-2 is cordoned: once it is well, `oarlock uncordon node-2`."),
    ],
    ids=["avoided", "given back", "cordoned"],
)
def test_a_job_that_waits_for_gpus_names_the_nodes_that_it_could_have(
    avoided: list[dict[str, Any]],
    cordoned: bool,  # noqa: FBT001
    words: str,
) -> None:
    nodes = [node("node-1"), node("node-2", cordoned=cordoned)]
    now = explain(facts(job(avoidedNodes=avoided), pods=[keeping_off("node-2")], nodes=nodes)).now
    assert now.cause == "NotEnoughGPUs"
    assert "the pods keep off node-2" in now.message
    assert now.next.endswith(words)


def test_of_a_node_that_a_webhook_keeps_pods_off_nobody_says_that_they_are_made_anew_for_it() -> None:
    pod = keeping_off("node-2")
    del pod["metadata"]["annotations"]
    now = explain(facts(job(), pods=[pod], nodes=[node("node-1"), node("node-2")])).now
    assert "the pods keep off node-2" in now.message
    assert "made anew" not in now.next


@pytest.mark.parametrize("name", ALL)
def test_how_a_node_is_given_back_is_said_once(name: str) -> None:
    commands = re.findall("oarlock uncordon [a-z0-9-]+", explain(ALL[name][0]).now.next)
    assert len(commands) == len(set(commands))


KILLED = "rank 1 was killed by SIGKILL (out of memory?)"
BEGAN = {"number": 1, "startTime": "2026-11-23T14:00:00Z", "nodeNames": ["node-1", "node-2"]}
BOOKED = {
    "attempt": 1, "round": 1, "reason": "ProcessKilled", "nodeName": "node-2", "rank": 1, "exitCode": 137,
    "message": f"pod flux-1-1 on node-2: {KILLED}", "endedTime": "2026-11-23T14:03:00Z", "resumedFromStep": 140,
    "lostSteps": 3, "downSeconds": 2.6,
}  # fmt: skip
ROUND_LINES = (
    line("AttemptStarted", rank=0, node="node-1", time="14:00:00"),
    line(
        "RoundEnded", rank=1, node="node-2", reason="Application", message=KILLED, time="14:03:00",
        data={"round": 1, "code": 137, "step": 143},
    ),
    line("RanksRestarted", rank=0, node="node-1", time="14:03:02", data={"round": 1, "step": 140, "downSeconds": 2.6}),
)  # fmt: skip
ROUND_SAID = f"{KILLED}; ranks started anew in their pods from step 140: 3 steps and 2.6 s lost"


def test_a_round_of_a_job_that_runs_is_told_between_its_attempts() -> None:
    story = explain(facts(job("Running", attempts=[BEGAN], rounds=[BOOKED])))
    (moment,) = (one for one in story.chain if one.what == "ProcessKilled")
    assert (moment.time, moment.text) == (BOOKED["endedTime"], f"pod flux-1-1 on node-2: {ROUND_SAID}")
    assert story.now.cause == "Training"
    assert story.trouble
    assert (story.trouble.cause, story.trouble.node, story.trouble.rank) == ("ProcessKilled", "node-2", 1)


def test_a_round_that_a_lost_pod_ended_says_that_the_pod_was_made_anew() -> None:
    story = explain(facts(job("Running", attempts=[BEGAN], rounds=[{**BOOKED, "rung": "ReplacePod"}])))
    (moment,) = (one for one in story.chain if one.what == "ProcessKilled")
    assert "its pod was made anew, and all ranks started from step 140: 3 steps and 2.6 s lost" in moment.text
    (one,) = story.attempts[0].rounds
    assert one.fault.action == "its pod was made anew"


def test_a_round_that_hung_says_how_much_of_its_time_it_took_to_find_that() -> None:
    of_hang = {**BOOKED, "reason": "Hang", "downSeconds": 63.1, "silentSeconds": 60.4}
    story = explain(facts(job("Running", attempts=[BEGAN], rounds=[of_hang])))
    (moment,) = (one for one in story.chain if one.what == "Hang")
    assert moment.text.endswith("3 steps and 63.1 s lost, 60 s of it until the hang was found")
    of_hang = {"round": 1, "code": 83, "step": 143, "silentSeconds": 60.4}
    lines = (ROUND_LINES[0], {**ROUND_LINES[1], "data": of_hang}, ROUND_LINES[2])
    assert explain(facts(None, output=output(*lines))).attempts[0].rounds[0].silent_seconds == 60.4


def test_a_round_says_whether_it_began_from_memory_and_how_long_the_gang_stood_by() -> None:
    words = "from step 140 in memory: 3 steps and 9.0 s lost, 7.5 s of it until the ranks were started"
    booked = {**BOOKED, "downSeconds": 9.0, "startWaitSeconds": 7.5, "resumedFromMemory": True}
    story = explain(facts(job("Running", attempts=[BEGAN], rounds=[booked])))
    assert any(one.text.endswith(words) for one in story.chain)
    data = {"round": 1, "step": 140, "downSeconds": 9.0, "startWaitSeconds": 7.5, "fromMemory": True}
    story = explain(facts(None, output=output(*ROUND_LINES[:2], {**ROUND_LINES[2], "data": data})))
    assert any(one.text.endswith(words) for one in story.chain)


def test_that_nothing_goes_on_is_told_before_it_is_a_hang() -> None:
    silent = {"step": 143, "silentSeconds": 45, "hangAfterSeconds": 60}
    story = explain(facts(job("Running", attempts=[BEGAN], progress=silent)))
    assert story.now.details == ("no progress for 45 s: after 60 s the ranks count as hung",)
    assert explain(facts(job("Recovering", attempts=[BEGAN], progress=silent))).now.details == ()


ANEW = {**BOOKED, "rung": "ReplacePod"}


def test_what_a_pod_left_that_was_made_anew_is_told_of_its_round_and_not_as_what_the_job_has_now() -> None:
    def left(time: str) -> dict[str, Any]:
        data = {"code": 137, "detectedAt": f"2026-11-23T{time}Z"}
        return line("Fault", rank=1, node="node-2", time=time, reason="Application", message=KILLED, data=data)

    first = (*ROUND_LINES[:1], left("14:02:58"))
    known = facts(job("Running", attempt=1, attempts=[BEGAN], rounds=[ANEW]), output=output(*first))
    assert (explain(known).now.cause, explain(known).attempts[0].faults) == ("Training", ())
    again = explain(facts(known.job, output=output(*first, left("14:20:00"))))
    assert [one.time for one in again.attempts[0].faults] == ["2026-11-23T14:20:00Z"], "the new one has failed, too"


def test_a_history_alone_says_of_a_lost_pod_what_the_status_did() -> None:
    moved = {"nodes": {"1": "node-9"}}
    lines = (
        ROUND_LINES[0],
        line("GangComplete", rank=0, time="14:00:01", data={"nodes": {"0": "node-1", "1": "node-2"}}),
        line("Fault", rank=1, node="node-2", time="14:02:58", reason="Application", message=KILLED,
             data={"code": 137, "detectedAt": "2026-11-23T14:02:58Z"}),
        line("GangComplete", rank=0, time="14:02:59", data=moved),
        {**ROUND_LINES[1], "data": {**ROUND_LINES[1]["data"], "lostPod": True}},
        ROUND_LINES[2],
    )  # fmt: skip
    (one,) = explain(facts(None, output=output(*lines))).attempts
    assert one.faults == ()
    (ended,) = one.rounds
    assert (ended.replaced, ended.fault.action, ended.fault.node) == (True, "its pod was made anew", "node-2")
    assert (one.node_names, one.replaced_node_names) == (("node-1", "node-9"), ("node-2",))
    began = {**BEGAN, "nodeNames": ["node-1", "node-9"], "replacedNodeNames": ["node-2"]}
    (of_status,) = explain(facts(job("Running", attempts=[began], rounds=[ANEW]))).attempts
    assert (of_status.node_names, of_status.replaced_node_names) == (one.node_names, one.replaced_node_names)
    stepped = {**began, "stageMilliseconds": {"firstStep": 1000}}
    chain = explain(facts(job("Running", attempts=[stepped], rounds=[ANEW]))).chain
    assert [one.text for one in chain if one.what == "Training"] == [
        "attempt 1 trains on node-1, node-9, earlier on node-2 (first step 1.0 s)"
    ]


def test_a_pod_that_was_made_anew_is_named_by_its_number_within_the_gang() -> None:
    said = "pod flux-1-1-i2 on node-2: rank 1 was killed by SIGKILL"
    (moment,) = (
        one
        for one in explain(facts(job("Running", attempts=[BEGAN], rounds=[{**ANEW, "message": said}]))).chain
        if one.what == "ProcessKilled"
    )
    assert moment.text.startswith(said)
    told = event("Hang", f"{said}. Attempt 2 starts.")
    story = explain(facts(job("Recovering", attempt=2, attempts=[BEGAN]), events=[told]))
    assert [(one.rank, one.pod) for one in story.attempts[0].faults] == [(1, "flux-1-1-i2")]


def test_while_a_pod_is_made_anew_it_is_said_which_and_why() -> None:
    lost = [{"rank": 2, "incarnation": 2, "nodeName": "node-3", "reason": "NodeLost"}, {"incarnation": 2}]
    busy = {"stage": "Replace", "stageStartTime": "2026-11-23T10:02:09Z", "replacing": lost}
    assert explain(facts(job("Recovering", attempt=1, recovery=busy))).now.details == (
        "now a lost pod is made anew, and the others stand by, since 10:02:09 UTC",
        "pod 2, lost on node-3: NodeLost",
        "pod ?",
    )


def test_a_pod_that_trains_on_until_its_next_one_is_ready_is_named() -> None:
    held = {"incarnation": 2, "holdUntilTime": "2099-01-01T00:00:00Z"}
    over = {**held, "rank": 3, "holdUntilTime": "2001-01-01T00:00:00Z"}
    recovery = {"surging": [{**held, "rank": 2}, over, held, {}]}
    assert explain(facts(job("Running", attempt=1, attempts=[BEGAN], recovery=recovery))).now.details == (
        "pod 2 was asked to go, and trains on until its next one is ready",
    )
    stands_by = job("Recovering", attempt=1, recovery={**recovery, "stage": "Replace"})
    assert not [line for line in explain(facts(stands_by)).now.details if "trains on" in line]


def test_when_a_gang_goes_on_with_fewer_nodes_is_told_also_where_the_new_pod_finds_no_node() -> None:
    said = (
        "node node-3 of pod flux-1-2 is lost. From 10:02:39 UTC on 2 of 3 nodes train, unless more are there by then."
    )
    busy = {"stage": "Replace", "stageStartTime": "2026-11-23T10:02:09Z"}
    waits = job("Recovering", attempt=1, recovery=busy, message=said)
    now = explain(facts(waits)).now
    assert now.message == said
    assert said not in now.details, "once is enough"
    now = explain(facts(waits, pods=[unplaced("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", 2)])).now
    assert said in now.details


def test_a_round_of_a_job_that_is_gone_is_told_by_its_history() -> None:
    ended = line("Ended", rank=0, node="node-1", time="14:40:00", reason="Succeeded", data={"step": 1000})
    story = explain(facts(None, output=output(*ROUND_LINES, ended)))
    (moment,) = (one for one in story.chain if one.what == "ProcessKilled")
    assert (moment.time, moment.text) == ("2026-11-23T14:03:00Z", f"node-2, pod 1: {ROUND_SAID}")
    assert (story.now.cause, story.attempts[0].faults) == ("Succeeded", ())


def test_a_round_that_status_and_history_tell_is_one_and_each_adds_what_it_knows() -> None:
    booked = {
        name: value for name, value in BOOKED.items() if name not in ("resumedFromStep", "lostSteps", "downSeconds")
    }
    story = explain(facts(job("Running", attempts=[BEGAN], rounds=[booked]), output=output(*ROUND_LINES)))
    (one,) = story.attempts[0].rounds
    assert (one.number, one.resumed_from_step, one.lost_steps, one.down_seconds) == (1, 140, 3, 2.6)


def test_a_round_whose_next_one_has_not_made_a_step_yet_is_told_without_what_it_cost() -> None:
    story = explain(facts(None, output=output(*ROUND_LINES[:2])))
    assert story.chain[-1].text == f"node-2, pod 1: {KILLED}; ranks started anew in their pods"


def test_a_fault_that_ended_its_attempt_after_all_is_no_round_of_it() -> None:
    at = str(BOOKED["endedTime"])
    fault = last_fault("Application", str(BOOKED["message"]), nodeName="node-2", rank=1, time=at)
    ended = {**BEGAN, "endReason": "ProcessKilled"}
    story = explain(facts(job("Recovering", attempt=2, attempts=[ended], lastFault=fault, rounds=[BOOKED])))
    assert (len(story.attempts[0].faults), story.attempts[0].rounds) == (1, ())


def test_what_a_history_may_hold_of_rounds_breaks_nothing() -> None:
    strange = [
        line("RoundEnded", data=data)
        for data in (
            {},
            {"round": "x"},
            {"round": True},
            {"round": 1, "code": "x", "step": [1]},
            {"round": -1, "code": 0},
        )
    ]
    strange += [{"type": "RoundEnded", "attempt": 1, "job": UID, "data": {"round": 7}, "rank": "a", "node": 3}]
    strange += [line("RanksRestarted", data={"round": 1, "step": "x", "downSeconds": "y"})]
    assert explain(facts(None, output=output(*strange))).attempts[0].rounds


def test_a_recovery_says_what_it_is_busy_with_and_since_when() -> None:
    busy = {"stage": "FirstStep", "stageStartTime": "2026-11-23T10:02:09Z"}
    story = explain(facts(job("Recovering", attempt=2, recovery=busy)))
    assert story.now.details == (
        "now imports, checks, the data and the model, until the first step, since 10:02:09 UTC",
    )
    assert explain(facts(job("Running", attempt=2, recovery=busy))).now.details == ()
