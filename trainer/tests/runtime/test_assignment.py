"""What a pod is told, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.gang_key import attempt_key
from oarlock_trainer.agent.ranks import rank_environment
from oarlock_trainer.runtime.assignment import AssignmentError, read_assignment, read_pod

if TYPE_CHECKING:
    from pathlib import Path

JOB: dict[str, Any] = {
    "version": 2,
    "job": "flux",
    "namespace": "default",
    "job_uid": "u",
    "attempt": 2,
    "nodes": 4,
    "gpus_per_node": 8,
    "output_directory": "/output/flux",
    "training": {},
}
KEY = b"k" * 32
ENVIRONMENT = {"MACHINE_RANK": "3"}


def told(tmp_path: Path, job: dict[str, Any] | str, **environment: str) -> dict[str, str]:
    path = tmp_path / "job.json"
    path.write_text(job if isinstance(job, str) else json.dumps(job))
    return ENVIRONMENT | {"OARLOCK_CONFIG": str(path)} | environment


def test_ranks_are_counted_node_by_node(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB))
    assert (assignment.ranks_per_node, assignment.first_rank, assignment.world_size) == (8, 24, 32)
    assert not assignment.on_cpu


def test_a_spare_is_a_pod_of_the_gang_whose_numbers_no_rank_of_the_first_round_has(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB | {"spares": 2}, MACHINE_RANK="5"))
    assert (assignment.pods, assignment.nodes, assignment.world_size, assignment.first_rank) == (6, 4, 32, 40)
    assert [address for address, _ in assignment.peers][4:] == ["flux-4.flux.default.svc", "flux-5.flux.default.svc"]


def test_the_ranks_of_a_round_count_by_the_places_of_its_pods(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB | {"spares": 2}, MACHINE_RANK="5"))
    taken = assignment.of_round((0, 5, 2, 3))
    assert (taken.place, taken.first_rank, taken.nodes, taken.world_size) == (1, 8, 4, 32)
    smaller = assignment.of_round((0, 1, 5))
    assert (smaller.place, smaller.first_rank, smaller.nodes, smaller.world_size) == (2, 16, 3, 24)


def test_a_round_of_the_pods_that_a_gang_has_first_is_told_as_the_first_one(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB))
    assert assignment.of_round((0, 1, 3)).of_round((0, 1, 2, 3)) == assignment


def test_without_gpus_each_node_has_one_rank_on_the_cpu(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB | {"gpus_per_node": 0}))
    assert (assignment.ranks_per_node, assignment.first_rank, assignment.world_size) == (1, 3, 4)
    assert assignment.on_cpu


def test_pretended_gpus_keep_their_ranks_but_compute_on_the_cpu(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB, OARLOCK_SIMULATE_GPUS="1"))
    assert (assignment.ranks_per_node, assignment.on_cpu) == (8, True)


def test_where_the_ranks_meet_is_known_from_the_job_unless_whoever_starts_them_says_otherwise(tmp_path: Path) -> None:
    assignment = read_assignment(told(tmp_path, JOB | {"ports": {"rendezvous": 30500}}))
    assert (assignment.master_address, assignment.master_port) == ("flux-0.flux.default.svc", 30500)
    assignment = read_assignment(told(tmp_path, JOB, MASTER_ADDR="127.0.0.1", MASTER_PORT="1234"))
    assert (assignment.master_address, assignment.master_port) == ("127.0.0.1", 1234)


def test_in_a_pod_no_variable_of_an_image_or_of_envfrom_says_where_the_ranks_meet(tmp_path: Path) -> None:
    strange = {"MASTER_ADDR": "localhost", "MASTER_PORT": "tcp://10.0.0.1:6379"}
    assignment = read_assignment(told(tmp_path, JOB, **strange), in_pod=True)
    assert (assignment.master_address, assignment.master_port) == ("flux-0.flux.default.svc", 29500)
    open_port = told(tmp_path, JOB | {"ports": {"rendezvous": 0}}, MASTER_ADDR="127.0.0.1", MASTER_PORT="30500")
    assert read_assignment(open_port, in_pod=True).master_port == 30500, "whoever made the file leaves it to the pod"


def test_what_the_agent_starts_knows_the_size_of_its_gang_and_where_it_meets(tmp_path: Path) -> None:
    environment = rank_environment.of_gang(read_assignment(told(tmp_path, JOB)))
    assert environment == {
        "NUM_MACHINES": "4",
        "NUM_PROCESSES": "32",
        "GPUS_PER_NODE": "8",
        "MAIN_PROCESS_IP": "flux-0.flux.default.svc",
        "MAIN_PROCESS_PORT": "29500",
        "MASTER_ADDR": "flux-0.flux.default.svc",
        "MASTER_PORT": "29500",
    }


@pytest.mark.parametrize(
    ("job", "environment", "words"),
    [
        pytest.param("{", {}, "not JSON", id="no JSON"),
        pytest.param("[]", {}, "not a JSON object", id="no object"),
        pytest.param(JOB | {"version": 3}, {}, "version 3", id="newer version"),
        pytest.param(JOB | {"pipelines": 4}, {}, "pipelines", id="unknown field"),
        pytest.param({"version": 2}, {}, "incomplete", id="missing fields"),
        pytest.param(JOB | {"nodes": "4"}, {}, "nodes", id="text for a number"),
        pytest.param(JOB | {"nodes": True}, {}, "nodes", id="truth for a number"),
        pytest.param(JOB | {"gpus_per_node": -1}, {}, "gpus_per_node", id="negative count"),
        pytest.param(JOB | {"training": None}, {}, "training", id="no training"),
        pytest.param(JOB | {"output_directory": "out"}, {}, "output_directory", id="relative output"),
        pytest.param(JOB | {"min_free_bytes": "200Gi"}, {}, "min_free_bytes", id="quantity for bytes"),
        pytest.param(JOB, {"MACHINE_RANK": "4"}, "has 0..3", id="rank beyond the gang"),
        pytest.param(JOB | {"spares": 1}, {"MACHINE_RANK": "5"}, "1 spares has 0..4", id="rank beyond the spares"),
        pytest.param(JOB | {"spares": -1}, {}, "spares", id="fewer than no spares"),
        pytest.param(JOB, {"MACHINE_RANK": ""}, "MACHINE_RANK is not set", id="no rank"),
        pytest.param(JOB, {"MASTER_PORT": "x"}, "not a port", id="no port"),
        pytest.param(JOB | {"ports": {"rendezvous": 65536}}, {}, "not a port", id="port 65536"),
        pytest.param(JOB, {"OARLOCK_CONFIG": "/nonexistent/job.json"}, "job.json is not mounted", id="no file"),
    ],
)
def test_what_is_not_understood_is_refused_in_words(
    tmp_path: Path, job: dict[str, Any] | str, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(AssignmentError, match=words):
        read_assignment(told(tmp_path, job, **environment))


def test_who_the_pod_is_can_be_read_without_a_job() -> None:
    pod = read_pod({"OARLOCK_ATTEMPT": "7", "OARLOCK_POD_UID": "p", "MACHINE_RANK": "no number"})
    assert (pod.attempt, pod.pod_uid, pod.rank, pod.job) == (7, "p", 0, "")


def test_a_pod_knows_which_one_of_its_rank_it_is_and_whether_the_one_before_may_still_run() -> None:
    first, second = read_pod({}), read_pod({"OARLOCK_INCARNATION": "2", "OARLOCK_REPLACES_PODS": "1"})
    assert (first.incarnation, first.follows_the_dead, first.replaces_pods) == (1, True, False)
    assert (second.incarnation, second.follows_the_dead, second.replaces_pods) == (2, False, True)
    assert read_pod({"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1"}).follows_the_dead


@pytest.mark.parametrize(("told", "read"), [("20 600", (20, 600)), ("", None), ("20", None), ("20 -1", None)])
def test_a_pod_knows_how_long_its_rounds_wait_where_that_is_told(told: str, read: tuple[int, int] | None) -> None:
    assert read_pod({"OARLOCK_BACKOFF": told}).backoff == read


# The gang's key


def test_the_agent_makes_its_attempts_key_from_the_file_beside_job_json(tmp_path: Path) -> None:
    given = told(tmp_path, JOB)
    assert read_assignment(given).key is None, "an operator that gives none"
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    assignment = read_assignment(given)
    assert assignment.key == attempt_key(KEY, assignment.job.job_uid, assignment.job.attempt)
    assert "key" not in repr(assignment)


@pytest.mark.parametrize("body", ["", "no hexadecimal", "abc"])
def test_a_key_that_cannot_be_read_ends_the_pod_instead_of_leaving_it_open(tmp_path: Path, body: str) -> None:
    given = told(tmp_path, JOB)
    (tmp_path / "key").write_text(body)
    with pytest.raises(AssignmentError, match="the gang's key"):
        read_assignment(given)


def test_a_gang_of_one_node_has_no_key(tmp_path: Path) -> None:
    given = told(tmp_path, JOB | {"nodes": 1}, MACHINE_RANK="0")
    (tmp_path / "key").write_text(KEY.hex())
    assert read_assignment(given).key is None


def test_the_gangs_agents_are_found_by_names_that_stay_whatever_the_environment_says_in_a_pod(tmp_path: Path) -> None:
    strange = {"OARLOCK_PEERS": "127.0.0.1:1,[::1]:2", "OARLOCK_SHARED_MEMORY": "/elsewhere"}
    job = JOB | {"nodes": 4, "ports": {"rendezvous": 30500, "status": 9500}}
    inside = read_assignment(told(tmp_path, job, **strange), in_pod=True)
    assert inside.peers[3] == ("flux-3.flux.default.svc", 9500)
    assert (len(inside.peers), str(inside.shared_memory)) == (4, "/dev/shm")
    outside = read_assignment(told(tmp_path, JOB, **strange))
    assert (outside.peers[0], str(outside.shared_memory)) == (("127.0.0.1", 1), "/elsewhere")
