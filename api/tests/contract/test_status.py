"""/status: values that are not known or make no sense are absent, never made up and never an error."""

from __future__ import annotations

import json
from dataclasses import replace
from operator import attrgetter

import pytest

from oarlock_api.contract.figures import Figures
from oarlock_api.contract.rounds import MAX_LOST, MAX_MEMBERS, LostPod, RoundEnd
from oarlock_api.contract.status import MAX_BYTES, Degradation, MemoryStatus, PodStatus, PreflightCheck, parse_status
from oarlock_api.contract.struck_gpu import StruckGpu
from oarlock_api.contract.wire import WireError


def read(**fields: object) -> PodStatus:
    return parse_status(json.dumps(fields))


def test_a_newer_version_with_unknown_fields_is_read_as_far_as_it_is_known() -> None:
    status = read(version=99, jobUid="uid", step=5, weather={"rain": True}, checkpoint={"step": 4, "shards": []})
    assert (status.job_uid, status.figures.step) == ("uid", 5)
    assert status.checkpoint is not None
    assert status.checkpoint.step == 4


@pytest.mark.parametrize(
    ("fields", "name", "expected"),
    [
        ({"loss": "nan"}, "figures.loss", None),
        ({"loss": float("nan")}, "figures.loss", None),
        ({"loss": float("inf")}, "figures.loss", None),
        ({"loss": 10**400}, "figures.loss", None),
        ({"loss": True}, "figures.loss", None),
        ({"loss": 2}, "figures.loss", 2.0),
        ({"step": 1.5}, "figures.step", None),
        ({"step": -(2**63)}, "figures.step", None),
        ({"attempt": "1"}, "attempt", 0),
        ({"jobUid": {"a": 1}}, "job_uid", ""),
        ({"jobUid": "u" * 100}, "job_uid", "u" * 64),
        ({"modelPath": "/x\udfff"}, "model_path", "/x?"),
        ({"message": "m" * 2000}, "message", "m" * 1024),
        ({"stepSeconds": [1.0]}, "step_seconds", {}),
        ({"stepSeconds": {"data": 1, "forward": "2", "lunch": 3.0}}, "step_seconds", {"data": 1.0}),
        ({"degraded": "NonFiniteLoss"}, "degraded", {}),
        ({"degraded": {"NonFiniteLoss": "", "CheckpointNotCopied": 5, "BadWeather": "rain"}}, "degraded", {}),
        ({"degraded": {"NonFiniteLoss": "n" * 600}}, "degraded", {"NonFiniteLoss": "n" * 512}),
        ({"slowPod": "1"}, "slow_pod", None),
        ({"slowPod": 1}, "slow_pod", 1),
        ({"plan": [1]}, "plan", None),
        ({"plan": {"effectiveBatch": 8, "zeroStage": "1", "memoryBytes": 1}}, "plan", None),
        ({"checkpoint": "step-4"}, "checkpoint", None),
        ({"checkpoint": {"path": "/no/step"}}, "checkpoint", None),
        ({"memory": {"savedAt": "2026-01-01T00:00:00Z", "copied": True}}, "memory", None),
        ({"silentSeconds": "45"}, "silent_seconds", None),
        ({"silentSeconds": 45}, "silent_seconds", 45.0),
        ({"memory": {"step": 4, "copied": "yes"}}, "memory", MemoryStatus(4, "", None)),
    ],
)
def test_a_strange_value_is_bounded_or_absent_and_never_an_error(
    fields: dict[str, object], name: str, expected: object
) -> None:
    assert attrgetter(name)(read(**fields)) == expected


def test_checks_before_the_start_are_bounded_in_number_and_length_on_both_sides() -> None:
    long = [{"name": "n" * 40, "result": "r" * 40, "milliseconds": "7", "detail": "d" * 600}] * 20
    status = read(preflight=["storage", *long])
    assert [len(check.name) + len(check.result) + len(check.detail) for check in status.preflight] == [576] * 7
    assert {check.milliseconds for check in status.preflight} == {None}
    checks = (PreflightCheck("c", "Failed", 1, "\0" * 9999),) * 20
    degraded = dict.fromkeys(Degradation, "\0" * 9999)
    ends = tuple(
        RoundEnd(
            number=9000 + n,
            ended_at="t" * 99,
            rank=9999,
            code=81,
            why="\0" * 9999,
            step=2**40,
            resumed_step=2**40,
            gpu=StruckGpu(index=1000, uuid="G" * 48, serial="S" * 48, xid=9999, probe="p" * 48),
            other_gpus=True,
            nodes=9999,
            spare=True,
        )
        for n in range(20)
    )
    lost = tuple(LostPod(rank=n, incarnation=2**20, code=255, why="\0" * 9999, lost_at="t" * 99) for n in range(20))
    grown = PodStatus("j", "p", 1, 0, "Preflight", "t", preflight=checks, degraded=degraded, message="\0" * 9999)
    grown = replace(grown, rounds=ends, lost=lost)
    assert len(grown.to_json()) < MAX_BYTES
    assert [end.number - 9000 for end in parse_status(grown.to_json()).rounds] == [12, 13, 14, 15, 16, 17, 18, 19]
    assert len(parse_status(grown.to_json()).preflight) == 8
    assert read(preflight={"storage": "Passed"}).preflight == ()


def test_the_pod_of_a_slow_rank_reads_as_it_was_and_0_is_one() -> None:
    told = [PodStatus("job", "pod", 1, 0, "Training", "t", slow_pod=pod) for pod in (None, 0, 7)]
    assert [parse_status(one.to_json()).slow_pod for one in told] == [None, 0, 7]


FIRST = RoundEnd(number=1, ended_at="t", rank=0, code=1, why="")
END = RoundEnd(
    number=2,
    ended_at="t",
    rank=1,
    code=139,
    why="segfault",
    step=7,
    resumed_step=4,
    down_seconds=1.25,
    silent_seconds=1.0,
    start_wait_seconds=0.25,
    from_memory=True,
)


def test_the_ends_of_rounds_read_as_they_were_and_the_first_round_is_no_news() -> None:
    told = PodStatus("job", "pod", 1, 0, "Training", "t", round=3, rounds=(FIRST, END))
    assert parse_status(told.to_json()) == told
    assert "round" not in PodStatus("job", "pod", 1, 0, "Training", "t").to_json()
    assert read(round=0).round == read(round="2").round == 1


LOST = LostPod(rank=3, incarnation=1, code=82, why="nothing was heard of it", lost_at="2026-01-01T00:00:05Z")


STRUCK = StruckGpu(index=5, uuid="GPU-5c1f", serial="1652", xid=94)
OF_A_GPU = replace(END, code=81, gpu=STRUCK, other_gpus=True)


def test_the_gpu_that_ended_a_round_reads_as_it_was() -> None:
    told = PodStatus("job", "pod", 1, 0, "Training", "t", rounds=(FIRST, OF_A_GPU))
    assert parse_status(told.to_json()) == told
    unnumbered = replace(OF_A_GPU, gpu=StruckGpu(index=0, uuid="GPU-5c1f", probe="poison"))
    assert read(rounds=[unnumbered.to_fields()]).rounds == (unnumbered,)


@pytest.mark.parametrize(
    "strange",
    [
        {"uuid": "GPU 5\0"},
        {"uuid": "G" * 49},
        {"uuid": ""},
        {"uuid": None},
        {"serial": 7},
        {"index": -1},
        {"index": 5.0},
        {"xid": 0},
        {"xid": "94"},
        {"xid": 10**6},
        {"probe": "<b>"},
    ],
)
def test_a_gpu_of_which_any_name_or_number_makes_no_sense_is_none(strange: dict[str, object]) -> None:
    raw = OF_A_GPU.to_fields() | {"gpu": STRUCK.to_fields() | strange}
    assert read(rounds=[raw]).rounds == (replace(OF_A_GPU, gpu=None),)


def test_a_round_that_asks_for_more_than_new_processes_names_no_gpu() -> None:
    raw = OF_A_GPU.to_fields() | {"code": 80}
    assert read(rounds=[raw]).rounds == (replace(OF_A_GPU, code=80, gpu=None),)


def test_lost_pods_and_the_rounds_that_they_ended_read_as_they_were() -> None:
    told = PodStatus("job", "pod", 1, 0, "Training", "t", round=3, rounds=(replace(END, lost_pod=True),), lost=(LOST,))
    assert parse_status(told.to_json()) == told
    assert "lost" not in PodStatus("job", "pod", 1, 0, "Training", "t", rounds=(END,)).to_json()
    assert "lostAt" not in replace(LOST, lost_at="").to_fields()


def test_one_more_lost_pod_is_told_than_are_replaced_at_once() -> None:
    lost = tuple(replace(LOST, rank=n) for n in range(20))
    told = parse_status(PodStatus("job", "pod", 1, 0, "Training", "t", lost=lost).to_json())
    assert [pod.rank for pod in told.lost] == list(range(MAX_LOST + 1))


def test_a_round_of_other_pods_reads_as_it_was_and_is_not_told_of_the_usual_ones() -> None:
    other = replace(END, nodes=3, spare=True)
    told = PodStatus(
        "job", "pod", 1, 0, "Training", "t", round=3, rounds=(FIRST, other), members=(0, 4, 2), surges=True
    )
    assert parse_status(told.to_json()) == told
    usual = PodStatus("job", "pod", 1, 0, "Training", "t", round=3, rounds=(FIRST, END))
    assert not {"members", "nodes", "spare"} & {*json.loads(usual.to_json()), *json.loads(usual.to_json())["rounds"][1]}


def test_pods_of_a_large_round_are_told_unless_there_is_no_room_for_them() -> None:
    told = PodStatus("job", "pod", 1, 0, "Training", "t", members=tuple(range(9000, 9000 + MAX_MEMBERS)))
    assert parse_status(told.to_json()) == told
    crowded = replace(told, degraded=dict.fromkeys(Degradation, "\U0001f525" * 512))
    crowded = replace(crowded, preflight=(PreflightCheck("c", "Failed", 1, "\0" * 512),) * 8, message="\0" * 1024)
    assert parse_status(crowded.to_json()) == replace(crowded, members=())


@pytest.mark.parametrize("raw", ["0", [0, -1], [0, "1"], [0, 0], [0, 1.5], list(range(MAX_MEMBERS + 1))])
def test_pods_of_a_round_that_make_no_sense_are_none(raw: object) -> None:
    assert read(members=raw).members == ()


@pytest.mark.parametrize("nodes", [0, -1, "3", 2**40])
def test_a_size_of_a_round_that_makes_no_sense_is_not_known(nodes: object) -> None:
    assert read(rounds=[END.to_fields() | {"nodes": nodes}]).rounds == (END,)


@pytest.mark.parametrize(
    "raw",
    [
        "lost",
        ["lost"],
        [{**LOST.to_fields(), "rank": -1}],
        [{**LOST.to_fields(), "incarnation": 0}],
        [{**LOST.to_fields(), "incarnation": "1"}],
        [{**LOST.to_fields(), "code": 0}],
    ],
)
def test_a_lost_pod_that_makes_no_sense_is_none(raw: object) -> None:
    assert read(lost=raw).lost == ()


def test_each_lost_pod_is_read_once_and_in_order() -> None:
    first = {**LOST.to_fields(), "rank": 0, "why": "w" * 999}
    assert [(pod.rank, len(pod.why)) for pod in read(lost=[LOST.to_fields(), first, first]).lost] == [(0, 80), (3, 23)]


@pytest.mark.parametrize(
    "raw",
    [
        "rounds",
        ["round"],
        [{**END.to_fields(), "number": 0}],
        [{**END.to_fields(), "number": 2**40}],
        [{**END.to_fields(), "rank": -1}],
        [{**END.to_fields(), "code": 0}],
        [{**END.to_fields(), "code": 256}],
        [{**END.to_fields(), "code": True}],
    ],
)
def test_an_end_of_a_round_that_makes_no_sense_is_none(raw: object) -> None:
    assert read(rounds=raw).rounds == ()


def test_each_end_of_a_round_is_read_once_and_in_order_and_its_strange_numbers_are_not_known() -> None:
    odd = {**END.to_fields(), "step": -1, "resumedStep": "4", "downSeconds": -0.5, "why": "w" * 999}
    first = {**odd, "number": 1}
    rounds = read(rounds=[odd, first, odd]).rounds
    assert [(end.number, end.step, end.resumed_step, end.down_seconds, len(end.why)) for end in rounds] == [
        (1, None, None, None, 200),
        (2, None, None, None, 200),
    ]


def test_what_is_not_finite_is_written_as_null() -> None:
    odd = Figures(loss=float("nan"), mfu=float("inf"))
    status = PodStatus("job", "pod", 1, 0, "Training", "t", figures=odd, message="\ud800")
    raw = json.loads(status.to_json().encode())
    assert (raw["loss"], raw["mfu"], raw["message"]) == (None, None, "?")


@pytest.mark.parametrize(
    "body",
    ["", "<html>", "[]", '{"jobUid": "' + "ß" * (MAX_BYTES // 2) + '"}'],
    ids=["empty", "html", "list", "longer than 64 KiB in bytes"],
)
def test_what_is_no_bounded_json_object_is_refused(body: str) -> None:
    with pytest.raises(WireError):
        parse_status(body)
