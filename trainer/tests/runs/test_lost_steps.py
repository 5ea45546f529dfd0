"""What a killed rank costs where each step's state is kept in memory: the step that it was at, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_process import Agent, free_port

from oarlock_api.contract.history import read_story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gang import Gang

DIES_AT = 6


@pytest.fixture
def dying(gang: Gang, tmp_path: Path) -> Iterator[Callable[[str], Agent]]:
    """An agent with two ranks, of which one is killed before or after the update of a step."""
    agent = Agent(tmp_path)

    def start(moment: str) -> Agent:
        agent.job |= {
            "nodes": 1, "training": gang.training(checkpoint={"intervalSteps": 1000}),
            "recovery": {"inPlace": "Auto", "memory": {"everySteps": "1"}},
        }  # fmt: skip
        (agent.scratch / "shm").mkdir()
        agent.environment |= {
            "OARLOCK_SHARED_MEMORY": str(agent.scratch / "shm"), "OARLOCK_OUTPUT_DIR": str(agent.output),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "DIES": f"{moment} {DIES_AT}",
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
    dying: Callable[[str], Agent],
) -> None:
    assert lost(dying("before")) == (DIES_AT - 1, DIES_AT - 1)


def test_a_rank_that_is_killed_after_a_steps_update_costs_that_step_at_most(dying: Callable[[str], Agent]) -> None:
    reached, resumed = lost(dying("after"))
    assert reached in (DIES_AT - 1, DIES_AT), "the other rank may not have come to tell of it"
    assert resumed == DIES_AT - 1
