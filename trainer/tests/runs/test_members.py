"""Gangs that go on without lost pods, on fewer nodes until they are back or on a spare: the training is the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import KEY, Agent, agents_of, free_port
from gang import losses_in
from reads import Reads

from oarlock_local.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gang import Gang

PICTURES = 24
EFFECTIVE = 8
EPOCH = PICTURES // EFFECTIVE
STEPS = 8 * EPOCH
TOLERANCE = 1e-5
"""Relative, of losses: see test_world_size.py."""


class Pods:
    """Agents with one rank each that train a small model into one output."""

    def __init__(
        self, home: Path, training: dict[str, Any], *, pods: int, memory: dict[str, Any] | None = None, **job: Any
    ) -> None:
        """`memory`: of the job's recovery."""
        self.output, self.pause, self._written = home / "output", home / "pause", home / "written"
        self._written.mkdir()
        self.agents = agents_of(home, pods=pods)
        ports, rendezvous = [free_port() for _ in self.agents], free_port()
        recovery = {"inPlace": "Auto", "standbySeconds": 120, **({"memory": memory} if memory else {})}
        for agent, port in zip(self.agents, ports, strict=True):
            agent.job |= {
                "gpus_per_node": 0, "output_directory": str(self.output), "training": training, "recovery": recovery, **job,
            }  # fmt: skip
            agent.job["ports"]["status"] = port
            (agent.scratch / "key").write_text(KEY)
            (agent.scratch / "shm").mkdir()
            agent.environment |= {
                "OARLOCK_REPLACES_PODS": "1", "MASTER_PORT": str(rendezvous), "GLOO_SOCKET_IFNAME": "lo",
                "OARLOCK_OUTPUT_DIR": str(self.output), "OARLOCK_PAUSE": str(self.pause),
                "WRITE_DOWN": str(self._written), "OARLOCK_SHARED_MEMORY": str(agent.scratch / "shm"),
                "OARLOCK_PEERS": ",".join(f"127.0.0.1:{port}" for port in ports),
                "SLOW_RANK": "0",  # or the run is over before a pod is lost
            }  # fmt: skip
            start(agent)

    def lose(self, *ranks: int) -> None:
        """Agents and their ranks, as with their nodes; the operator sees it."""
        for rank in ranks:
            self.agents[rank].end()
            shutil.rmtree(self.agents[rank].scratch / "shm")
            (self.agents[rank].scratch / "shm").mkdir()
            self.agents[0].hear_of_the_end(rank, next_incarnation=self._incarnation(rank) + 1)

    def replace(self, *ranks: int) -> None:
        for rank in ranks:
            next_one = {"OARLOCK_INCARNATION": str(self._incarnation(rank) + 1), "OARLOCK_FOLLOWS_THE_DEAD": "1"}
            self.agents[rank].environment |= next_one
            start(self.agents[rank])

    def _incarnation(self, rank: int) -> int:
        return int(self.agents[rank].environment.get("OARLOCK_INCARNATION", "1"))

    def until(self, fact: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """What rank 0's agent tells once that is so."""

        def told() -> dict[str, Any] | None:
            status = self.agents[0].status()
            return status if fact(status) else None

        found: dict[str, Any] = eventually(told, what)
        return found

    def trains_in(self, number: int) -> dict[str, Any]:
        def trains(status: dict[str, Any]) -> bool:
            return status.get("round") == number and status["rounds"][-1]["downSeconds"] is not None

        return self.until(trains, f"a step of round {number}")

    def end_well(self) -> None:
        for agent in self.agents:
            assert agent.wait() == 0, self.logs()

    def samples(self) -> dict[int, Counter[str]]:
        """The pictures of each step, as the last round that did it had them."""
        rounds: dict[int, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for file in self._written.iterdir():
            for line in map(json.loads, file.read_text().splitlines()):
                rounds[line["step"]][line["round"]][line["picture"]] += 1
        return {step: found[max(found)] for step, found in rounds.items()}

    def losses(self) -> dict[int, float]:
        """The loss of each step, as the last round that did it had it."""
        return losses_in(self.output)

    def logs(self) -> str:
        return "\n".join(agent.log_path.read_text()[-4000:] for agent in self.agents)


def start(agent: Agent) -> None:
    agent.start("disturbed:main", warm="oarlock_trainer.ranks.preload:import_everything")


def assert_each_picture_is_trained_once_an_epoch(samples: dict[int, Counter[str]]) -> None:
    assert {step: pictures.total() for step, pictures in samples.items()} == dict.fromkeys(range(STEPS), EFFECTIVE)
    for first, end in pairwise(range(0, STEPS + 1, EPOCH)):
        seen = sum((samples[step] for step in range(first, end)), Counter[str]())
        assert len(seen) == PICTURES
        assert set(seen.values()) == {1}


def training(gang: Gang, **fields: Any) -> dict[str, Any]:
    data = gang.data(textEmbeds={"path": str(gang.cache / "tw")}, imageEmbeds={"path": str(gang.cache / "iw")})
    return gang.training(
        steps=STEPS, batchSize=1, effectiveBatch=EFFECTIVE, aspectBuckets=False, data=data,
        optimizer={"learningRate": 1e-3}, **{"engine": {"strategy": "DDP"}, "checkpoint": {"intervalSteps": 2}, **fields},
    )  # fmt: skip


@pytest.fixture
def pods(gang: Gang, tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def make(*, pods: int, fields: dict[str, Any] | None = None, **job: Any) -> Pods:
        made.append(Pods(tmp_path, training(gang, **(fields or {})), pods=pods, **job))
        return made[-1]

    yield make
    for one in made:
        for agent in one.agents:
            agent.end()


@pytest.fixture
def calm(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of three ranks that nothing disturbs."""
    home = tmp_path_factory.mktemp("calm")
    (home / "written").mkdir()
    run = gang.run(home / "output", training(gang), ranks=3, environment={"WRITE_DOWN": str(home / "written")})
    assert set(run.codes.values()) == {0}, gang.log()
    return losses_in(home / "output")


@pytest.mark.deep
def test_a_gang_of_3_nodes_goes_on_as_2_as_3_as_1_and_as_3_with_the_losses_and_pictures_of_one_that_lost_none(
    pods: Callable[..., Pods], calm: dict[int, float]
) -> None:
    random = Random(20)  # noqa: S311 - no secret
    found, rounds = pods(pods=3, nodes=3, elastic={"minNodes": 1, "patienceSeconds": 1}), []
    for lost in [random.choice([1, 2])], [1, 2]:
        number, step = len(rounds) + 1, (rounds[-1]["resumedStep"] if rounds else 0) + random.randint(2, 4)
        found.until(lambda status, step=step: status["checkpoint"] and status["step"] >= step, f"step {step}")
        found.lose(*lost)
        found.trains_in(number + 1)
        found.pause.touch()  # or the run is over before the pods are back
        found.replace(*lost)
        found.until(
            lambda status, number=number: "can train on" in status["message"] or status["round"] > number + 1,
            "that the gang can be larger",
        )
        found.pause.unlink()
        whole = found.until(lambda status: status["rounds"][-1].get("nodes") == 3, "the round of all")
        rounds = found.trains_in(whole["round"])["rounds"]
    found.end_well()
    sizes = [end["nodes"] for end in rounds]
    assert sizes in ([2, 3, 1, 3], [2, 3, 1, 2, 3]), "pods that are made together need not be ready together"
    for end in rounds:
        if end["code"] == 86:
            assert end["step"] in (None, end["resumedStep"]), "growing costs nothing, and may come before a step"
        else:
            assert 2 <= end["resumedStep"] <= end["step"]
    assert_each_picture_is_trained_once_an_epoch(found.samples())
    assert found.losses() == pytest.approx(calm, rel=TOLERANCE)


@pytest.mark.deep
def test_a_gang_of_3_nodes_goes_on_as_2_and_as_1_from_memory_and_as_3_from_what_they_saved(
    pods: Callable[..., Pods], calm: dict[int, float]
) -> None:
    fields = {"checkpoint": {"intervalSteps": 6}}
    elastic = {"minNodes": 1, "patienceSeconds": 1}
    found = pods(pods=3, fields=fields, memory={"everySteps": "1"}, nodes=3, elastic=elastic)
    for number, lost, step in ((1, 1, 7), (2, 2, 13)):  # the first ones after a checkpoint
        found.until(
            lambda status, number=number, step=step: (
                (status.get("round") or 1) == number and (status["step"] or 0) >= step and status["checkpoint"]
            ),
            f"step {step}",
        )
        found.lose(lost)
        with Reads(found.output) as reads:
            found.trains_in(number + 1)
            assert not [name for name in reads.names() if name.endswith(".state")]
            next((found.output / "checkpoints").glob("*/*.state")).read_bytes()
            assert [name for name in reads.names() if name.endswith(".state")], "it would be seen"
    found.pause.touch()
    found.replace(1, 2)
    found.until(
        lambda status: "can train on" in status["message"] or status["round"] > 3, "that the gang can be larger"
    )
    found.pause.unlink()
    whole = found.until(lambda status: status["rounds"][-1].get("nodes") == 3, "the round of all")
    rounds = found.trains_in(whole["round"])["rounds"]
    found.end_well()
    assert [end["nodes"] for end in rounds][:2] == [2, 1]
    for end in rounds[:2]:
        assert end["fromMemory"]
        assert 0 <= end["step"] - end["resumedStep"] <= 1, rounds
    for end in rounds[2:]:
        assert end["step"] in (None, end["resumedStep"]), "growing costs nothing, and may come before a step"
    assert_each_picture_is_trained_once_an_epoch(found.samples())
    assert found.losses() == pytest.approx(calm, rel=TOLERANCE)


@pytest.mark.deep
def test_a_spare_takes_a_lost_pods_place_and_the_next_pod_of_that_rank_is_a_spare_until_the_end(
    pods: Callable[..., Pods],
) -> None:
    found = pods(pods=3, nodes=2, spares=1)
    found.until(lambda status: status["checkpoint"] and status["step"] >= 3, "a step after a checkpoint")
    found.lose(1)
    status = found.trains_in(2)
    assert status["members"] == [0, 2]
    (ended,) = status["rounds"]
    assert (ended["rank"], ended["lostPod"], ended["spare"]) == (1, True, True)
    found.replace(1)
    aside = "stands by: the gang trains without this pod"
    eventually(lambda: found.agents[1].status()["message"] == aside, "the pod that came back stands by")
    found.end_well()
    assert_each_picture_is_trained_once_an_epoch(found.samples())
