"""Whatever the operator or an agent can say has a row in the one table of causes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from oarlock.explain.causes import OF_CLASS, OF_CODE, Cause, named
from oarlock.explain.faults import of_report
from oarlock.explain.rounds import rounds
from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_api.contract.report import Report
from oarlock_api.contract.rounds import RoundEnd
from oarlock_api.contract.status import Degradation, PodStatus
from oarlock_operator.faults.classify import classify
from oarlock_operator.model.observation import Ending, Pod
from oarlock_operator.model.reasons import Reason
from oarlock_trainer.agent.history.life import Life, Teller


def test_every_reason_of_the_operator_is_a_cause() -> None:
    assert [reason.value for reason in Reason if named(reason.value) is None] == []


@pytest.mark.parametrize("code", [1, 137])
@pytest.mark.parametrize(
    "said", ["rank 3 was killed by SIGKILL", "rank 0: CUDA out of memory", "rank 0: KeyError: 'mask'"]
)
def test_an_end_of_a_program_has_one_name_for_the_operator_and_for_why(said: str, code: int) -> None:
    """In status.reason, attempts and Events, and in the words of the story."""
    report = Report(1, 0, "u", "Application", code, "2026-11-23T10:30:00Z", said)
    pod = Pod(name="flux-1-0", uid="u", attempt=1, rank=0, ending=Ending(code, report=report))
    fault = classify(pod)
    assert fault
    assert of_report(report, job="flux").cause == fault.reason
    killed = classify(replace(pod, ending=Ending(137)))
    assert killed
    assert killed.reason == "ProcessKilled"


def test_a_round_that_a_gpu_ended_which_survived_sends_nobody_to_repair_it() -> None:
    """The operator's reason is one for all faults of GPUs."""
    ended = {"attempt": 1, "round": 1, "reason": Reason.GPU_FAULT, "exitCode": 81, "message": "GPU 5 XID 94"}
    line = {"type": "RoundEnded", "attempt": 1, "rank": 0, "message": "GPU 5 XID 94", "data": {"round": 1, "code": 81}}
    for told in (rounds([ended], (), attempt=1, where={}, job=""), rounds([], [line], attempt=1, where={}, job="")):
        assert [one.fault.cause for one in told] == [Cause.GPU_PROCESS_FAULT]
    (lost,) = rounds([ended | {"exitCode": 80, "rung": "ReplacePod"}], (), attempt=1, where={}, job="")
    assert lost.fault.cause is Cause.GPU_FAULT


@pytest.mark.parametrize("code", [1, 83, 137])
@pytest.mark.parametrize("said", ["rank 3 was killed by SIGKILL", "rank 0: CUDA out of memory", "no step for 60.4 s"])
def test_the_fault_of_a_round_has_one_name_for_the_operator_and_in_status_and_history(said: str, code: int) -> None:
    """As has an attempt that ends so."""
    at = "2026-11-23T10:30:00Z"
    report = Report(1, 0, "u", "", code, at, said)
    fault = classify(Pod(name="flux-1-0", uid="u", attempt=1, rank=0, ending=Ending(code, report=report)))
    assert fault
    life = Life(Teller(job="u", attempt=1, rank=0, node="node-1"))
    before = PodStatus(job_uid="u", pod_uid="p", attempt=1, rank=0, phase="Training", heartbeat_at=at)
    life.changes(before, at=at)
    end = RoundEnd(number=1, ended_at=at, rank=0, code=code, why=said)
    lines = [json.loads(line.to_json()) for line in life.changes(replace(before, rounds=(end,)), at=at)]
    booked = {"attempt": 1, "round": 1, "reason": fault.reason, "exitCode": code, "message": fault.message}
    for told in (rounds([], lines, attempt=1, where={}, job=""), rounds([booked], (), attempt=1, where={}, job="")):
        assert [one.fault.cause for one in told] == [fault.reason]


def test_every_exit_code_and_class_and_degradation_has_a_cause() -> None:
    assert set(OF_CODE) == set(ExitCode)
    assert set(OF_CLASS) == set(FailureClass)
    assert [kind.value for kind in Degradation if named(kind.value) is None] == []


def test_every_cause_says_what_it_means_and_what_to_do() -> None:
    assert [cause.value for cause in Cause if not cause.meaning or not cause.next.endswith((".", ")"))] == []


CRD = yaml.safe_load((Path(__file__).parents[1] / "crds/trainingjobs.yaml").read_text())
JOB: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
FIELDS = sorted(
    {found.rstrip(".") for cause in Cause for found in re.findall(r"spec\.[a-zA-Z.]+", f"{cause.meaning} {cause.next}")}
)


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_to_be_changed_is_a_field_of_the_job(field: str) -> None:
    schema = JOB
    for name in field.split("."):
        if name not in schema.get("properties", {}):
            assert schema.get("x-kubernetes-preserve-unknown-fields"), f"{name} of {field}"
            return
        schema = schema["properties"][name]
