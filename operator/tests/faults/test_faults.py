"""What an ending means, and who broke the gang."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import START, report

from oarlock_api.contract.exit_codes import ExitCode, FailureClass
from oarlock_operator.faults.attribution import attribute, detected_at
from oarlock_operator.faults.classify import Avoid, Budget, Fault, classify, missing
from oarlock_operator.model.observation import Ending, Pod

POD = Pod(name="flux-1-1", uid="u", attempt=1, rank=1, node="node-b", started=True)

TABLE = {
    ExitCode.REPLACE_NODE: (FailureClass.GPU, "GPUFault", Budget.INFRASTRUCTURE),
    ExitCode.RESTART_PROCESS: (FailureClass.GPU, "GPUFault", Budget.INFRASTRUCTURE),
    ExitCode.PEER_LOST: (FailureClass.PEER_LOST, "PeerLost", Budget.INFRASTRUCTURE),
    ExitCode.HANG: (FailureClass.HANG, "Hang", Budget.APPLICATION),
    ExitCode.STORAGE: (FailureClass.STORAGE, "StorageFault", Budget.INFRASTRUCTURE),
    ExitCode.CONFIGURATION: (FailureClass.CONFIGURATION, "ConfigurationError", Budget.NONE),
    ExitCode.LEFT_ON_REQUEST: (FailureClass.REQUESTED, "LeftOnRequest", Budget.VOLUNTARY),
    ExitCode.PREFLIGHT: (FailureClass.PREFLIGHT, "PreflightFailed", Budget.INFRASTRUCTURE),
    ExitCode.FENCED: (FailureClass.FENCED, "OutputInUse", Budget.NONE),
    # Everything else is the application's.
    1: (FailureClass.APPLICATION, "ApplicationError", Budget.APPLICATION),
    2: (FailureClass.APPLICATION, "ApplicationError", Budget.APPLICATION),
    79: (FailureClass.APPLICATION, "ApplicationError", Budget.APPLICATION),
    89: (FailureClass.APPLICATION, "ApplicationError", Budget.APPLICATION),
    137: (FailureClass.APPLICATION, "ProcessKilled", Budget.APPLICATION),
    255: (FailureClass.APPLICATION, "ApplicationError", Budget.APPLICATION),
}


def ended(code: int | None, **ending: str) -> Pod:
    return replace(POD, ending=Ending(code, **ending))


def test_the_table_has_a_row_for_every_exit_code_of_the_contract() -> None:
    assert {code for code in ExitCode if code != ExitCode.DONE} <= TABLE.keys()


@pytest.mark.parametrize("code", TABLE, ids=str)
def test_an_exit_code_has_one_class_one_reason_and_one_budget(code: int) -> None:
    fault = classify(ended(int(code)))
    assert fault is not None
    assert (fault.failure_class, fault.reason, fault.budget) == TABLE[code]
    assert "flux-1-1 on node-b" in fault.message
    assert str(int(code)) in fault.message


@pytest.mark.parametrize(
    "pod",
    [ended(0), replace(ended(0), gone=True), replace(ended(0), deleting=True), POD, replace(POD, started=False)],
    ids=["done", "done and gone", "done and being deleted", "running", "pending"],
)
def test_a_pod_that_works_or_ended_well_is_no_fault(pod: Pod) -> None:
    assert classify(pod) is None


@pytest.mark.parametrize(
    ("pod", "reason", "words"),
    [
        (replace(POD, gone=True), "PodDisappeared", "is gone"),
        (missing("flux-1-1", 1, 1).pod, "PodDisappeared", "is gone"),
        (
            ended(None, reason="UnexpectedAdmissionError", message="no GPU left"),
            "UnexpectedAdmissionError",
            "no GPU left",
        ),
        (ended(None), "PodFailed", "no container ran"),
        (
            ended(137, reason="OOMKilled", message="step 7"),
            "OOMKilled",
            "SIGKILL (exit code 137), out of memory: raise",
        ),
        (
            ended(137, message="step 7"),
            "ProcessKilled",
            "SIGKILL (exit code 137), as where the node runs out of memory",
        ),
        (replace(ended(137), deleting=True), "KilledAfterGrace", "because the time that it had to save was over"),
        (ended(139, message="Fatal Python error"), "ApplicationError", "(signal 11): Fatal Python error"),
        (ended(1, message="ValueError: x"), "ApplicationError", "exit code 1: ValueError: x"),
    ],
)
def test_a_fault_says_in_words_what_happened(pod: Pod, reason: str, words: str) -> None:
    fault = classify(pod)
    assert fault is not None
    assert fault.reason == reason
    assert words in fault.message
    assert "step 7" not in fault.message, "the last line of a log is no reason"


@pytest.mark.parametrize(
    ("disrupted", "reason"),
    [("", "PodDisappeared"), ("PreemptionByScheduler", "Evicted")],
    ids=["deleted", "preempted"],
)
def test_a_pod_that_is_being_deleted_saves_and_is_a_fault_only_when_it_is_overdue(disrupted: str, reason: str) -> None:
    pod = replace(POD, deleting=True, disrupted=disrupted)
    assert classify(pod) is None
    fault = classify(pod, overdue=True)
    assert fault is not None
    assert fault.reason == reason


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to "
    'start container process: error during container init: exec: "{program}": {why}: unknown'
)
NOT_FOUND = "executable file not found in $PATH"
CRUN = "container create failed: executable file `{program}` not found in $PATH: No such file or directory"
HOOK = (
    "failed to create containerd task: OCI runtime create failed: runc create failed: error running prestart hook #0: exit "
    "status 1, stderr: nvidia-container-cli: mount error: /usr/lib/firmware: no such file or directory: unknown"
)
NO_RUNTIME = (
    "OCI runtime create failed: unable to retrieve OCI runtime error (open log.json: no such file or directory)"
)
ESCAPED = (
    'container create failed: time="2026-01-01T12:00:00Z" level=error msg="runc create failed: unable to start container '
    'process: exec: \\"oarlock-trainer\\": executable file not found in $PATH"'
)


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending(128, reason="StartError", message=ESCAPED), "its image has no program oarlock-trainer: "),
        (
            Ending(128, reason="StartError", message=RUNC.format(program="oarlock-trainer", why=NOT_FOUND)),
            "its image has no program oarlock-trainer: spec.pod.image has to be the trainer image",
        ),
        (
            Ending(128, reason="StartError", message=RUNC.format(program="python3", why=NOT_FOUND)),
            "a Python of 3.10 or newer",
        ),
        (
            Ending(
                128, reason="StartError", message=RUNC.format(program="/x", why="stat /x: no such file or directory")
            ),
            "its image has no program /x",
        ),
        (
            Ending(127, reason="ContainerCannotRun", message=CRUN.format(program="oarlock-trainer")),
            "spec.pod.image has to be",
        ),
        (
            Ending(
                None,
                message="the init container oarlock-agent ended with 128: "
                + RUNC.format(program="oarlock-trainer", why=NOT_FOUND),
            ),
            "the operator's trainer image (TRAINER_IMAGE",
        ),
        (Ending(127, reason="Error", message="exec: oarlock-trainer: not found"), "exec: oarlock-trainer: not found"),
        (Ending(127, reason="Error"), "exit code 127"),
    ],
    ids=["runc by CRI-O", "runc", "python", "a path", "crun", "the agent's own image", "a shell", "a mute shell"],
)
def test_a_program_that_is_not_in_the_image_ends_the_job_with_what_mends_it(ending: Ending, words: str) -> None:
    fault = classify(replace(POD, ending=ending))
    assert fault is not None
    assert (fault.failure_class, fault.reason, fault.budget) == (
        FailureClass.CONFIGURATION,
        "ConfigurationError",
        Budget.NONE,
    )
    assert words in fault.message


@pytest.mark.parametrize(
    "ending",
    [
        Ending(128, reason="StartError", message=HOOK),
        Ending(127, reason="ContainerCannotRun", message=HOOK),
        Ending(
            128, reason="StartError", message=f'{NO_RUNTIME}: exec: "nvidia-container-runtime": {NOT_FOUND}: unknown'
        ),
        Ending(128, reason="StartError"),
    ],
    ids=["a driver's hook", "the same by Docker", "the node's runtime", "a mute runtime"],
)
def test_what_else_keeps_a_container_from_starting_is_its_nodes(ending: Ending) -> None:
    fault = classify(replace(POD, ending=ending))
    assert fault is not None
    assert (fault.failure_class, fault.budget, fault.avoid) == (
        FailureClass.PREFLIGHT,
        Budget.INFRASTRUCTURE,
        Avoid.RATHER,
    )
    assert fault.reason == ending.reason
    assert fault.refused_by_node


def test_what_a_program_that_ran_has_logged_of_a_missing_one_is_its_own() -> None:
    ending = Ending(1, reason="Error", message='wandb: exec: "git": executable file not found in $PATH')
    fault = classify(replace(POD, ending=ending))
    assert fault is not None
    assert fault.budget is Budget.APPLICATION


def test_a_command_of_the_job_s_own_that_its_shell_does_not_find_is_the_application_s() -> None:
    fault = classify(replace(POD, ending=Ending(127, report=report(POD, code=127, at=START))))
    assert fault is not None
    assert fault.budget is Budget.APPLICATION


def test_a_report_speaks_for_its_pod() -> None:
    said = report(POD, code=80, at=START, summary="XID 79 on GPU 5")
    fault = classify(replace(POD, ending=Ending(80, report=said)))
    assert fault is not None
    assert fault.message == "pod flux-1-1 on node-b: XID 79 on GPU 5"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("rank 3 was killed by SIGKILL", "ProcessKilled"),
        ("rank 3 was killed by SIGKILL: out of memory (the kernel killed 1 process)", "OOMKilled"),
        ("rank 0: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "GPUOutOfMemory"),
        ("the loss of 10 steps in a row was not finite", "NonFiniteLoss"),
        ("rank 0: ValueError: could not parse 'nan' in column height", "ApplicationError"),
    ],
)
def test_a_programs_end_has_the_name_that_why_gives_it(said: str, reason: str) -> None:
    fault = classify(replace(POD, ending=Ending(1, report=report(POD, code=1, at=START, summary=said))))
    assert fault is not None
    assert (fault.reason, fault.failure_class, fault.budget) == (reason, "Application", Budget.APPLICATION)


@pytest.mark.parametrize(
    "pod",
    [
        replace(ended(137), disrupted="EvictionByEvictionAPI"),
        replace(ended(None, reason="Evicted"), disrupted="Evicted"),
        replace(ended(80), disrupted="TerminationByKubelet"),
        replace(POD, gone=True, disrupted="PreemptionByScheduler"),
    ],
    ids=["killed", "without container", "any code", "gone"],
)
def test_an_eviction_or_preemption_outranks_any_exit_code_and_costs_nothing(pod: Pod) -> None:
    fault = classify(pod)
    assert fault is not None
    assert (fault.reason, fault.budget, fault.failure_class) == ("Evicted", Budget.VOLUNTARY, FailureClass.REQUESTED)
    assert pod.disrupted in fault.message


def test_a_pod_that_is_marked_for_eviction_and_still_works_is_no_fault() -> None:
    assert classify(replace(POD, disrupted="EvictionByEvictionAPI")) is None
    assert classify(replace(ended(0), disrupted="EvictionByEvictionAPI")) is None


def fault(rank: int, code: int | None, *, at: datetime | None = None, gone: bool = False) -> Fault:
    pod = replace(POD, name=f"flux-1-{rank}", rank=rank, gone=gone)
    if code is not None:
        pod = replace(pod, ending=Ending(code, report=report(pod, code=code, at=at) if at else None))
    found = classify(pod)
    assert found is not None
    return found


CODES = [int(code) for code in TABLE if code != 0]
TIMES = st.none() | st.integers(0, 5000).map(lambda ms: START + timedelta(milliseconds=ms))
FAULTS = st.builds(
    lambda rows: [
        fault(rank, code, at=at if code else None, gone=code is None) for rank, (code, at) in enumerate(rows)
    ],
    st.lists(st.tuples(st.sampled_from([*CODES, 82, 82, None]), TIMES), min_size=1, max_size=8),
)


@given(FAULTS)
def test_a_victim_is_never_the_cause_while_a_cause_spoke(faults: list[Fault]) -> None:
    found = attribute(faults)
    assert found.cause in faults
    assert found.cause.victim == all(one.victim for one in faults)
    assert found.victims == sum(one.victim for one in faults) - found.cause.victim


@given(FAULTS, st.randoms())
def test_the_cause_does_not_depend_on_the_order_in_which_pods_are_read(faults: list[Fault], random: object) -> None:
    shuffled = list(faults)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert attribute(shuffled) == attribute(faults)


def test_the_earliest_cause_wins_over_a_later_one_and_over_an_earlier_victim() -> None:
    victim = fault(0, 82, at=START)
    crash = fault(1, 1, at=START + timedelta(seconds=2))
    first = fault(2, 80, at=START + timedelta(seconds=1))
    assert attribute([victim, crash, first]).cause is first


def test_what_no_restart_can_mend_outranks_an_earlier_crash() -> None:
    assert attribute([fault(0, 1, at=START), fault(1, 85, at=START + timedelta(seconds=9))]).cause.pod.rank == 1


def test_a_pod_that_disappeared_is_what_its_peers_lost_and_not_one_of_the_victims() -> None:
    found = attribute([fault(0, 82, at=START), fault(1, None, gone=True), fault(2, 82, at=START)])
    assert (found.cause.reason, found.victims) == ("PodDisappeared", 2)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.5Z"),
        ("2026-01-01T12:00:00+00:00", "2026-01-01T12:00:00.000001+00:00"),
        ("2026-01-01T13:00:00+02:00", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00Z", "yesterday"),
        ("2026-01-01T12:00:00Z", "0"),
        ("2026-01-01T12:00:00Z", "2025-01-01T12:00:00"),
        ("2026-01-01T12:00:00Z", ""),
    ],
    ids=["fractions", "microseconds", "time zones", "words", "garbage", "no time zone", "none"],
)
def test_times_are_compared_as_times_and_what_is_none_comes_last(earlier: str, later: str) -> None:
    def crashed(rank: int, detected: str) -> Fault:
        found = fault(rank, 1, at=START)
        assert found.pod.ending is not None
        assert found.pod.ending.report is not None
        said = replace(found.pod.ending.report, detected_at=detected)
        return replace(found, pod=replace(found.pod, ending=replace(found.pod.ending, report=said)))

    assert attribute([crashed(0, later), crashed(1, earlier)]).cause.pod.rank == 1


def test_without_times_the_lowest_rank_is_named() -> None:
    assert attribute([fault(3, 1), fault(1, 1), fault(2, 1)]).cause.pod.rank == 1


def test_the_time_of_a_fault_is_its_pod_s_own_word_with_a_time_zone_or_none() -> None:
    assert detected_at(fault(0, 1, at=START.astimezone(timezone(timedelta(hours=2))))) == START.astimezone(UTC)
    assert detected_at(fault(0, 1)) is None
    assert detected_at(fault(0, None, gone=True)) is None
