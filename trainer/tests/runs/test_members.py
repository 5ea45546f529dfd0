"""Gangs that go on without a lost pod, on fewer nodes until it is back or on a spare: a picture is trained once an epoch."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import Agent, agents_of, eventually, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gang import Gang

PICTURES = 24
EFFECTIVE = 8
EPOCH = PICTURES // EFFECTIVE
STEPS = 8 * EPOCH


class Pods:
    """Agents with one rank each that train a small model into one output."""

    def __init__(self, home: Path, training: dict[str, Any], *, pods: int, **job: Any) -> None:
        self.output, self.pause, self._written = home / "output", home / "pause", home / "written"
        self._written.mkdir()
        self.agents = agents_of(home, pods=pods)
        rendezvous = free_port()
        for agent in self.agents:
            agent.job |= {
                "gpus_per_node": 0, "output_directory": str(self.output), "training": training,
                "recovery": {"inPlace": "Auto", "standbySeconds": 120}, **job,
            }  # fmt: skip
            (agent.scratch / "key").write_text("ab" * 32)
            agent.environment |= {
                "OARLOCK_REPLACES_PODS": "1", "MASTER_PORT": str(rendezvous), "GLOO_SOCKET_IFNAME": "lo",
                "OARLOCK_OUTPUT_DIR": str(self.output), "OARLOCK_PAUSE": str(self.pause),
                "WRITE_DOWN": str(self._written),
                "SLOW_RANK": "0",  # or the run is over before a pod is lost
            }  # fmt: skip
            start(agent)

    def lose(self, rank: int) -> None:
        """Agent and ranks, as with the node."""
        self.agents[rank].end()

    def replace(self, rank: int) -> None:
        self.agents[rank].environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1"}
        start(self.agents[rank])

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


@pytest.fixture
def pods(gang: Gang, tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def make(*, pods: int, **job: Any) -> Pods:
        data = gang.data(textEmbeds={"path": str(gang.cache / "tw")}, imageEmbeds={"path": str(gang.cache / "iw")})
        training = gang.training(
            steps=STEPS, batchSize=1, effectiveBatch=EFFECTIVE, aspectBuckets=False, data=data,
            engine={"strategy": "DDP"}, optimizer={"learningRate": 1e-3}, checkpoint={"intervalSteps": 2},
        )  # fmt: skip
        made.append(Pods(tmp_path, training, pods=pods, **job))
        return made[-1]

    yield make
    for one in made:
        for agent in one.agents:
            agent.end()


def test_a_gang_of_three_goes_on_as_two_from_the_newest_checkpoint_and_grows_again_with_nothing_lost(
    pods: Callable[..., Pods],
) -> None:
    found = pods(pods=3, nodes=3, elastic={"minNodes": 2, "patienceSeconds": 1})
    found.until(lambda status: status["checkpoint"] and status["step"] >= 3, "a step after a checkpoint")
    found.lose(2)
    found.trains_in(2)
    found.pause.touch()  # or the run is over before the pod is back
    found.replace(2)
    found.until(
        lambda status: "can train on 3 nodes" in status["message"] or status["round"] > 2, "that the gang can be larger"
    )
    found.pause.unlink()
    shrunk, grown = found.trains_in(3)["rounds"]
    assert (shrunk["rank"], shrunk["lostPod"], shrunk["nodes"]) == (2, True, 2)
    assert 2 <= shrunk["resumedStep"] <= shrunk["step"]
    assert (grown["code"], grown["nodes"], grown["resumedStep"]) == (86, 3, grown["step"])
    found.end_well()
    assert_each_picture_is_trained_once_an_epoch(found.samples())


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
