"""What ranks are told of a round whose pods are not those that the gang has first."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_api.contract.gang_key import KEY_FIELD
from oarlock_api.contract.log_lines import LogStream
from oarlock_trainer.agent.ranks.local_ranks import LocalRanks
from oarlock_trainer.runtime import children
from oarlock_trainer.runtime.assignment import read_assignment
from oarlock_trainer.runtime.job import read_rank_info

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JOB: dict[str, Any] = {
    "version": 2, "job": "flux", "namespace": "default", "job_uid": "u", "attempt": 1, "nodes": 3, "spares": 1,
    "gpus_per_node": 2, "output_directory": "/output/flux",
    "training": {"method": "Full", "effectiveBatch": 12, "batchSize": 2},
    "recovery": {"inPlace": "Auto", "memory": {"everySteps": "Auto"}},
}  # fmt: skip


class Host:
    """The ranks of one pod, and what their host was told."""

    def __init__(self, folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
        path = folder / "job.json"
        path.write_text(json.dumps(JOB))
        (folder / KEY_FIELD).write_text("ab" * 32)
        told = {"OARLOCK_CONFIG": str(path), "MACHINE_RANK": str(rank), "OARLOCK_REPLACES_PODS": "1"}
        assignment = read_assignment(told)
        self.environment: Mapping[str, str] = {}
        self._orders = -1

        def spawn(_command: list[str], *, environment: Mapping[str, str], inherit: tuple[int, ...], **_: Any) -> int:
            self.environment, self._orders = environment, os.dup(inherit[0])
            return 1

        monkeypatch.setattr(children, "spawn", spawn)
        nobody = dict.fromkeys(LogStream, lambda _: None)
        self.ranks = LocalRanks(assignment, {}, program="p:q", warm="w:x", run_directory=folder, keep=nobody)
        self.ranks.load()

    def started(self, *members: int) -> list[dict[str, str]]:
        """The environments of the ranks of a round that has these pods, or of the first."""
        if members:
            self.ranks.be_of_round(members)
        self.ranks.start({"OARLOCK_ROUND": "2"})
        order = json.loads(os.read(self._orders, 65536))
        common = {name: value for name, value in self.environment.items() if name not in order["without"]}
        return [common | each for each in order["ranks"]]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, 2, monkeypatch)


def places(environment: Mapping[str, str]) -> list[str]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NUM_MACHINES", "NUM_PROCESSES")
    return [environment[name] for name in names]


def test_ranks_of_a_smaller_round_count_by_places_and_know_its_size(host: Host) -> None:
    first, second = host.started(0, 2)
    assert places(first) == ["2", "0", "4", "2", "1", "2", "4"]
    assert places(second) == ["3", "1", "4", "2", "1", "2", "4"]
    assert host.ranks.numbers == range(2, 4)
    assert list(host.ranks.pods) == [0, 2]


def test_a_smaller_round_makes_more_passes_a_step_so_that_accelerate_is_told_of_them(host: Host) -> None:
    """Where ranks make more than one pass, ZeRO's stage is open: the ranks' planner takes 1 or 2."""
    passes, stage = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "ACCELERATE_DEEPSPEED_ZERO_STAGE"
    assert [(one[passes], one.get(stage)) for one in host.started()] == [("1", "1")] * 2
    assert [(one[passes], one.get(stage)) for one in host.started(0, 2)] == [("2", None)] * 2
    assert [(one[passes], one.get(stage)) for one in host.started(0, 1, 2)] == [("1", "1")] * 2


def test_a_pod_that_has_its_own_place_again_starts_its_ranks_as_in_the_first_round(host: Host) -> None:
    first = host.started()
    assert host.started(0, 2) != first
    assert host.started(0, 1, 2) == first
    assert "OARLOCK_MEMBERS" not in first[0]


def test_ranks_know_which_pod_another_rank_is_in(host: Host) -> None:
    info = read_rank_info(host.started(0, 2)[0])
    assert [info.pod_of(rank) for rank in range(4)] == [0, 0, 2, 2]
    info = read_rank_info(host.started(0, 1, 2)[0])
    assert [info.pod_of(rank) for rank in range(6)] == [0, 0, 1, 1, 2, 2]


def test_a_spare_that_takes_a_place_has_the_ranks_of_that_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare = Host(tmp_path, 3, monkeypatch)
    assert [one["RANK"] for one in spare.started(0, 3, 2)] == ["2", "3"]


def test_ranks_keep_their_state_in_a_round_of_any_size_and_nobody_copies_that_of_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, 0, monkeypatch)
    rounds = [host.started()[0], host.started(0, 2)[0], host.started(0)[0]]
    assert len({one["OARLOCK_MEMORY"] for one in rounds}) == 1
    assert [one.get("OARLOCK_MEMORY_RING") for one in rounds] == ["1", "1", None]
