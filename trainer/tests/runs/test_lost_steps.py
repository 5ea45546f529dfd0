"""What a killed rank costs where each step's state is kept in memory: the step that it was at, and no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import Agent, free_port

from oarlock_api.contract.history import read_story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gang import Gang

pytestmark = pytest.mark.deep
DIES_AT = 6


@pytest.fixture
def dying(gang: Gang, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """An agent with two ranks, of which one is killed before or after the update of a step."""
    agent = Agent(tmp_path)

    def start(moment: str, **fields: Any) -> Agent:
        agent.job |= {
            "nodes": 1, "training": gang.training(checkpoint={"intervalSteps": 1000}, **fields),
            "recovery": {"inPlace": "Auto", "memory": {"everySteps": "1"}},
        }  # fmt: skip
        (agent.scratch / "shm").mkdir()
        agent.environment |= {
            "OARLOCK_SHARED_MEMORY": str(agent.scratch / "shm"), "OARLOCK_OUTPUT_DIR": str(agent.output),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "DIES": moment,
            "SLOW_RANK": "0",  # or the next round's first step is its last, and nobody books it
        }  # fmt: skip
        agent.start("disturbed:main", warm="oarlock_trainer.ranks.preload:import_everything")
        return agent

    yield start
    agent.end()


def lost(agent: Agent) -> tuple[int, int]:
    """The last step of which anybody told in the first round, and the one that the next began with."""
    assert agent.wait() == 0, agent.log_path.read_text()[-4000:]
    ended, again = (line for line in read_story(agent.output) if line.type in {"RoundEnded", "RanksRestarted"})
    assert ended.data["code"] == 137
    return ended.data["step"], again.data["step"]


def test_a_rank_that_is_killed_before_a_steps_update_costs_no_step_that_was_done(
    dying: Callable[..., Agent],
) -> None:
    assert lost(dying(f"before {DIES_AT}")) == (DIES_AT - 1, DIES_AT - 1)


def test_a_rank_that_is_killed_after_a_steps_update_costs_that_step_at_most(dying: Callable[..., Agent]) -> None:
    reached, resumed = lost(dying(f"after {DIES_AT}"))
    assert reached in (DIES_AT - 1, DIES_AT), "the other rank may not have come to tell of it"
    assert resumed == DIES_AT - 1


def shown(output: Path) -> tuple[dict[str, bytes], dict[int, Any]]:
    """Pictures by their path, and the losses on unseen data by step: of several lines the last."""
    pictures = {str(path.relative_to(output)): path.read_bytes() for path in (output / "validation").rglob("*.png")}
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return pictures, {line["step"]: line["evaluationLoss"] for line in lines if "evaluationLoss" in line}


def test_pictures_that_a_killed_rank_cut_off_and_losses_on_unseen_data_after_it_are_those_of_an_undisturbed_run(
    dying: Callable[..., Agent], gang: Gang, tmp_path: Path
) -> None:
    source = {"path": str(gang.pictures)}
    datasets = [{"name": "photos", "source": source}, {"name": "unseen", "source": source, "role": "Evaluation"}]
    prompts = [{"name": name, "prompt": name} for name in ("boat", "cat", "moon")]
    fields: dict[str, Any] = {
        "steps": 4, "data": gang.data(datasets=datasets),
        "validation": {"everySteps": 2, "prompts": prompts, "resolutions": ["64x48"], "inferenceSteps": 2},
    }  # fmt: skip
    calm = gang.run(tmp_path / "calm", gang.training(**fields))
    assert calm.codes == {0: 0, 1: 0}, gang.log()
    agent = dying("drawing", **fields)
    assert lost(agent) in ((2, 1), (2, 2)), "it is killed while the state of step 2 goes into memory"
    pictures, losses = shown(agent.output)
    assert (pictures, losses) == shown(tmp_path / "calm")
    assert len(pictures) == 2 * (len(prompts) + 1)
    assert losses.keys() == {4}
    index = json.loads((agent.output / "validation/index.json").read_text())["pictures"]
    assert sorted(entry["step"] for entry in index) == [2] * 3 + [4] * 3
