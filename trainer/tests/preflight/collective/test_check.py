"""The collective check over gloo: several nodes on one machine, and what each of them says when one is in trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROGRAM = Path(__file__).parents[2] / "support" / "collective_gang.py"
Answer = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[..., Answer]]:
    """Runs gangs in a process that has torch; this one stays without."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [sys.executable, str(_PROGRAM)], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout

    def ask(
        *, nodes: int = 3, ranks: int = 1, seconds: float = 30.0, apart: float = 90.0, floor: int | None = None,
        **troubles: str,
    ) -> Answer:  # fmt: skip
        order = {"nodes": nodes, "ranks": ranks, "seconds": seconds, "apart": apart, "floor": floor}
        order["troubles"] = {name.removeprefix("node_"): trouble for name, trouble in troubles.items()}
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        return {one["rank"]: one for one in json.loads(process.stdout.readline())}

    yield ask
    process.stdin.close()
    process.wait(timeout=patience.SECONDS)


def codes(answer: Answer) -> dict[int, int]:
    return {rank: one["code"] for rank, one in answer.items()}


def test_two_nodes_that_reach_each_other_pass_and_train_with_the_group_that_was_checked(
    run: Callable[..., Answer],
) -> None:
    answer = run(nodes=2)
    assert {rank: (one["code"], one["said"]) for rank, one in answer.items()} == {0: (0, "2 ranks"), 1: (0, "2 ranks")}
    for one in answer.values():
        (check,) = one["checks"]
        assert (check["name"], check["result"]) == ("collective", "Passed")
        assert check["milliseconds"] > 0
        assert "16 MiB were added up over 2 ranks of 2 nodes in" in check["detail"]
        assert "GB/s of bus bandwidth)" in check["detail"]
        assert [event["message"] for event in one["degraded"]] == [""]
        assert "node 0 (gpu-00) " in check["detail"]
        assert "node 1 (gpu-01) " in check["detail"]


def test_several_ranks_of_a_node_are_one_node(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, ranks=2)
    assert set(codes(answer).values()) == {0}
    assert "over 4 ranks of 2 nodes" in answer[0]["checks"][0]["detail"]


def test_a_slow_node_is_named_with_its_milliseconds_and_trains_all_the_same(run: Callable[..., Answer]) -> None:
    answer = run(node_1="is slow")
    assert codes(answer) == {0: 0, 1: 0, 2: 0}
    check = answer[2]["checks"][0]
    assert check["result"] == "Warning"
    assert "Slow: node 1 (gpu-01)" in check["detail"]
    assert "node before: node 1 (gpu-01) 50" in check["detail"]  # 5000 and a few: the slowest stands first


def test_a_network_below_the_floor_is_told_as_degraded_and_trains_all_the_same(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, floor=100_000)
    assert codes(answer) == {0: 0, 1: 0}
    for one in answer.values():
        (check,), (degraded,) = one["checks"], one["degraded"]
        assert (check["result"], degraded["reason"]) == ("Warning", "SlowNetwork")
        assert "GB/s is below 100000 (spec.preflight.minBusBandwidth)" in degraded["message"]
        assert degraded["message"] in check["detail"]


@pytest.mark.deep
def test_a_floor_of_zero_is_none(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, floor=0)
    assert [one["checks"][0]["result"] for one in answer.values()] == ["Passed", "Passed"]


def test_a_node_that_does_not_come_is_named_by_those_that_did_and_nobody_is_blamed(run: Callable[..., Answer]) -> None:
    answer = run(node_1="absent")
    assert codes(answer) == {0: 82, 2: 82}
    assert "node 1 did not come to the collective check within 90 s, 2 of 3 nodes did" in answer[0]["said"]
    assert answer[0]["checks"][0]["result"] == "Failed"


@pytest.mark.deep
def test_pods_that_come_up_far_apart_meet_however_short_the_check_is_to_be(run: Callable[..., Answer]) -> None:
    """The second comes after more than three times the thirty seconds that the check itself may take."""
    answer = run(nodes=2, seconds=30.0, apart=200.0, node_1="comes late")
    assert codes(answer) == {0: 0, 1: 0}


def test_a_node_that_cannot_reach_rank_0_while_another_can_is_cut_off(run: Callable[..., Answer]) -> None:
    answer = run(node_2="cannot connect")
    assert codes(answer) == {0: 82, 1: 82, 2: 87}
    assert "node 2 (gpu-02) cannot reach rank 0 at 127.0.0.1:1, and node 1 can: it is cut off" in answer[2]["said"]
    told, *waited = (answer[rank]["checks"][0]["milliseconds"] for rank in (2, 0, 1))
    assert told < 90_000 <= min(waited), "before the others leave, or nobody would hear of it"


def test_of_two_nodes_that_do_not_meet_none_can_be_told_to_be_cut_off(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, node_1="cannot connect")
    assert codes(answer) == {0: 82, 1: 82}
    assert "node 1 (gpu-01) could not reach rank 0 at 127.0.0.1:1 within 90 s" in answer[1]["said"]


def test_a_node_that_no_other_node_reaches_is_cut_off(run: Callable[..., Answer]) -> None:
    answer = run(node_1="cannot be reached")
    assert codes(answer) == {0: 82, 1: 87, 2: 82}
    assert "node 1 (gpu-01) is cut off from the other nodes" in answer[1]["said"]
    assert "node 1 (gpu-01) cut off" in answer[0]["said"]


def test_two_nodes_that_do_not_reach_each_other_are_both_victims(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, node_1="cannot be reached")
    assert codes(answer) == {0: 82, 1: 82}
    assert "no TCP connection between node 0 (gpu-00) and node 1 (gpu-01)" in answer[0]["said"]


def test_an_all_reduce_that_hangs_ends_in_time_and_names_who_is_not_done(run: Callable[..., Answer]) -> None:
    answer = run(node_1="hangs")
    assert codes(answer) == {0: 82, 1: 82, 2: 82}
    assert "all 3 nodes came, and their all-reduce did not end within 30 s" in answer[1]["said"]


def test_an_nccl_that_cannot_lock_memory_ends_with_what_to_set_on_the_node(run: Callable[..., Answer]) -> None:
    trouble = {"node_0": "cannot lock memory", "node_1": "cannot lock memory"}
    answer = run(nodes=2, **trouble)
    assert codes(answer) == {0: 82, 1: 82}
    assert "Call to ibv_reg_mr failed" in answer[1]["said"]
    assert "set LimitMEMLOCK=infinity for containerd" in answer[1]["said"]


def test_a_sum_that_is_wrong_ends_the_gang(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, node_1="corrupts")
    assert codes(answer) == {0: 82, 1: 82}
    assert "an all-reduce of ones over 2 ranks gave" in answer[0]["said"]


def test_a_rank_that_is_asked_to_leave_while_it_waits_leaves(run: Callable[..., Answer]) -> None:
    answer = run(nodes=2, node_0="is asked to leave", node_1="absent")
    assert codes(answer) == {0: 86}
    assert answer[0]["checks"] == []
