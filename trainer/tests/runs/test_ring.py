"""A node that is lost: its pod's next incarnation has its state back from the next node, and training goes on from there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import nvml_library
import pytest
from agent_process import Agent, agents_of, free_port
from reads import Reads

from oarlock_api.contract.history import METRICS, read_story
from oarlock_api.contract.layout import DATA_MANIFEST, OWNER, PRIVATE
from oarlock_local import nvml
from oarlock_local.patience import eventually
from oarlock_trainer.checkpoint.memory.held import folder_of, held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep

STEPS = 40
NO_STATE = (f"{PRIVATE}/data/", f"{PRIVATE}/history/", f"{PRIVATE}/probe-")
"""What the data are, what agents tell, and whether the storage answers a new one."""


def weights(output: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in (output / "model" / "transformer").glob("*.safetensors")}
    assert found
    return found


class Nodes:
    """Two agents with one rank each, and those of spares, that share an output, and have a /dev/shm of their own."""

    def __init__(self, home: Path, training: dict[str, Any], *, spares: int = 0) -> None:
        self.home, self.output = home, home / "output"
        self.agents = agents_of(home, pods=2 + spares)
        ports, rendezvous = [free_port() for _ in self.agents], free_port()
        for node, agent in enumerate(self.agents):
            agent.job |= {
                "gpus_per_node": 1, "output_directory": str(self.output), "training": training,
                "recovery": {"inPlace": "Auto", "memory": {"everySteps": "2"}, "standbySeconds": 120},
                **({"spares": spares} if spares else {}),
            }  # fmt: skip
            agent.job["ports"]["status"] = ports[node]
            (agent.scratch / "key").write_text("ab" * 32)
            (agent.scratch / "shm").mkdir()
            agent.environment |= {
                "OARLOCK_REPLACES_PODS": "1", "OARLOCK_SHARED_MEMORY": str(agent.scratch / "shm"),
                "OARLOCK_PEERS": ",".join(f"127.0.0.1:{port}" for port in ports),
                "MASTER_PORT": str(rendezvous), "GLOO_SOCKET_IFNAME": "lo", "OARLOCK_OUTPUT_DIR": str(self.output),
                "SLOW_RANK": "0",  # or the run is over before a node is lost
            }  # fmt: skip

    def start(self, agent: Agent) -> None:
        agent.start("disturbed:main", warm="oarlock_trainer.ranks.preload:import_everything")

    def memory(self, node: int) -> Path:
        return folder_of("uid-of-job", 3, shared_memory=self.agents[node].scratch / "shm")

    def give_gpus(self, node: int, name: str) -> nvml.Control:
        """Pretended ones that can break, for its next agent."""
        folder = self.home / name
        folder.mkdir()
        self.agents[node].environment["NVML_LIBRARY"] = str(nvml_library.build(folder))
        gpus = nvml.Control(folder)
        gpus.set("gpus=1")
        return gpus

    def trains_again(self) -> bool:
        """Whether a step was done since the first round ended."""
        return any(end["downSeconds"] for end in self.agents[0].status().get("rounds", ()))

    def logs(self) -> str:
        return "\n".join(agent.log_path.read_text()[-4000:] for agent in self.agents)


def training(gang: Gang) -> dict[str, Any]:
    return gang.training(steps=STEPS, checkpoint={"intervalSteps": 1000})


@pytest.fixture(params=[0])
def nodes(gang: Gang, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    found = Nodes(tmp_path, training(gang), spares=request.param)
    yield found
    for agent in found.agents:
        agent.end()


@pytest.fixture(scope="module")
def calm(gang: Gang, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that nothing disturbed."""
    output = tmp_path_factory.mktemp("calm")
    gang.run(output, training(gang))
    return output


def switch_off(nodes: Nodes) -> Callable[[], object]:
    """Node 1, with its agent and ranks."""
    return nodes.agents[1].end


def drop_the_gpu(nodes: Nodes) -> Callable[[], object]:
    """Node 1's falls off the bus, and its agent leaves. The pod's next incarnation has another one."""
    gpus = nodes.give_gpus(1, "gpus")

    def drop() -> None:
        gpus.inject(gpu=0, xid=79)
        assert nodes.agents[1].wait() == 80, nodes.logs()
        nodes.agents[1].end()  # with the pod's first process all others of it end
        nodes.give_gpus(1, "gpus of another node")

    return drop


def lose_node_1(nodes: Nodes, fault: Callable[[Nodes], Callable[[], object]] = switch_off) -> None:
    """With its memory, once node 0 has its part of a step, and the copy of node 1's."""
    strike = fault(nodes)
    for agent in nodes.agents:
        nodes.start(agent)

    def both() -> bool:
        return any(set(of) == {0, 1} and step >= 4 for step, _, of in held(nodes.memory(0), ranks_per_node=1))

    eventually(both, f"both parts on node 0:\n{nodes.logs()}")
    strike()
    shutil.rmtree(nodes.memory(1))


@pytest.mark.parametrize("fault", [switch_off, drop_the_gpu])
def test_a_lost_nodes_state_comes_back_from_the_next_and_the_weights_are_those_of_a_calm_run_to_the_last_bit(
    nodes: Nodes, calm: Path, fault: Callable[[Nodes], Callable[[], object]]
) -> None:
    lose_node_1(nodes, fault)
    with Reads(nodes.output) as reads:
        nodes.agents[1].environment |= {"OARLOCK_INCARNATION": "2", "OARLOCK_FOLLOWS_THE_DEAD": "1"}
        nodes.start(nodes.agents[1])
        eventually(nodes.trains_again, "a step of round 2")
        read = {name for name in reads.names() if not name.startswith(NO_STATE)}
    assert nodes.agents[0].wait() == 0, nodes.logs()
    assert nodes.agents[1].wait() == 0, nodes.logs()
    (again,) = (line for line in read_story(nodes.output) if line.type == "RanksRestarted")
    back = next(line for line in nodes.agents[1].log() if line.get("message") == "state in memory that came back")
    assert again.data["step"] in back["steps"], nodes.logs()
    assert again.data["step"] >= 4
    assert read == {OWNER, METRICS, DATA_MANIFEST}
    assert weights(nodes.output) == weights(calm)


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_a_spare_has_the_state_of_the_place_that_it_takes_from_the_next_and_training_goes_on_without_a_checkpoint(
    nodes: Nodes, calm: Path
) -> None:
    lose_node_1(nodes)
    assert nodes.agents[0].wait() == 0, nodes.logs()
    assert nodes.agents[2].wait() == 0, nodes.logs()
    (again,) = (line for line in read_story(nodes.output) if line.type == "RanksRestarted")
    back = next(line for line in nodes.agents[2].log() if line.get("message") == "state in memory that came back")
    assert again.data["step"] in back["steps"], nodes.logs()
    assert again.data["step"] >= 4
    assert weights(nodes.output) == weights(calm)
