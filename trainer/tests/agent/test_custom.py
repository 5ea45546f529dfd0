"""A trainer of the job's own under the agent in one file: what it is given, how it is asked to leave, how its end is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import own_program
import pytest
from agent_process import Agent, lives
from pythons import PYTHONS

from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def own(agent: Agent, bundle: Path) -> Callable[..., Agent]:
    """Starts one of the programs of own_program.py."""
    agent.job["preflight"]["storage"] = False

    def start(name: str, *arguments: str, **how: Any) -> Agent:
        agent.start_bundled(bundle, [sys.executable, own_program.__file__, name, *arguments], **how)
        return agent

    return start


@pytest.mark.parametrize("python", quick_first(PYTHONS))
def test_it_is_given_its_arguments_its_folder_and_the_contracts_environment(
    own: Callable[..., Agent], agent: Agent, python: Callable[[], Path], tmp_path: Path
) -> None:
    of_webhooks = "OARLOCK_SECRET_CHAT_URL_0011223344556677"
    agent.environment |= {"MINE": "1", "OMP_NUM_THREADS": "3", of_webhooks: "hush"}
    agent.job["nodes"] = 1
    agent.job["preflight"] |= {"storage": True, "clock": True}
    (tmp_path / "here").mkdir()
    agent.job["custom"] = {"args": ["--rank=$(MACHINE_RANK)", "$$(MINE) $(NOBODYS)"], "workingDir": f"{tmp_path}/here"}
    assert own("tells_what_it_was_given", "two words", python=python()).wait() == 0
    given = json.loads((tmp_path / "given").read_text())
    assert given["arguments"] == ["two words", "--rank=0", "$(MINE) $(NOBODYS)"]
    assert given["folder"] == str(tmp_path / "here")
    environment = given["environment"]
    assert {name: environment[name] for name in ("MINE", "OMP_NUM_THREADS", "MASTER_PORT", "NUM_PROCESSES")} == {
        "MINE": "1",
        "OMP_NUM_THREADS": "3",
        "MASTER_PORT": "29500",
        "NUM_PROCESSES": "2",
    }
    assert environment["ACCELERATE_USE_CPU"] == "True"
    assert environment["OARLOCK_ROUND"] == "1"
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OARLOCK_AGENT_FD", of_webhooks} & environment.keys()
    assert agent.report()["summary"] == "the command is done"
    assert (tmp_path / "run" / "accelerate.yaml").is_file()


def test_how_it_fails_is_told_by_its_code_and_its_last_exception(own: Callable[..., Agent]) -> None:
    agent = own("fails_as_pytorch_does")
    assert agent.wait() == 3
    report = agent.report()
    assert (report["class"], report["code"]) == ("Application", 3)
    assert report["summary"] == "the command: ValueError: the loss is not a number"
    assert "ChildFailedError" in agent.log_path.read_text()  # passed through


def test_secrets_that_it_prints_last_are_struck_out_of_its_report(agent: Agent, bundle: Path) -> None:
    agent.environment |= {"MY_API_TOKEN": "t0ken-of-mine", "DB_PASSWORD": "pass-w0rd", "MODE": "fast-and-loose"}
    says = "import os; raise ValueError(' '.join(os.environ[n] for n in ('MY_API_TOKEN', 'DB_PASSWORD', 'MODE')))"
    agent.start_bundled(bundle, [sys.executable, "-c", says])
    assert agent.wait() == 1
    assert agent.report()["summary"] == "the command: ValueError: *** *** fast-and-loose"


def test_a_code_of_the_contract_means_what_the_contract_says(agent: Agent, bundle: Path) -> None:
    agent.job["preflight"]["storage"] = False
    agent.start_bundled(bundle, ["sh", "-c", "exit 86"])
    assert agent.wait() == 86
    assert agent.report()["class"] == "Requested"


@pytest.mark.deep
def test_who_kills_it_is_told(own: Callable[..., Agent]) -> None:
    agent = own("runs")
    os.kill(int(agent.awaited("running")), signal.SIGKILL)
    assert agent.wait() == 137
    assert agent.report()["summary"].startswith("the command was killed by SIGKILL")


@pytest.mark.parametrize(
    ("command", "folder", "words"),
    [
        (
            ["no-such-trainer"],
            "",
            "spec.custom.command: 'no-such-trainer' can't be started in this image: No such file",
        ),
        (["/etc/passwd"], "", "spec.custom.command: '/etc/passwd' can't be started in this image: Permission denied"),
        (["true"], "/nowhere", "spec.custom.workingDir: /nowhere: No such file or directory in this image"),
    ],
)
def test_what_the_image_does_not_have_is_a_configuration_error(
    agent: Agent, bundle: Path, command: list[str], folder: str, words: str
) -> None:
    agent.job["preflight"]["storage"] = False
    agent.job["custom"] = {"workingDir": folder} if folder else {}
    agent.start_bundled(bundle, command)
    assert agent.wait() == 85
    assert agent.report()["summary"].startswith(words)


@pytest.mark.parametrize("program", quick_first(["saves_when_asked", "runs"]))
def test_asked_to_leave_it_leaves_on_request_however_it_ends(own: Callable[..., Agent], program: str) -> None:
    agent = own(program)
    agent.awaited("running")
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert "left on request; it ended" in agent.report()["summary"]
    assert (agent.scratch / "saved").exists() is (program == "saves_when_asked")


LAUNCHERS = pytest.mark.parametrize(
    "launcher",
    quick_first(
        [
            "launches_an_orphan_that_saves",
            "launches_one_that_saves",
            "launches_one_that_saves_in_another_session",
            "launches_a_part_that_saves",
        ]
    ),
)


@LAUNCHERS
def test_ranks_are_asked_and_waited_for_when_their_launcher_is_gone(own: Callable[..., Agent], launcher: str) -> None:
    agent = own(launcher)
    agent.awaited("running")
    agent.send(signal.SIGTERM)
    agent.awaited("saving")
    eventually(lambda: agent.status()["phase"] == "Saving", "the agent waits")
    agent.mark("storage-is-back")
    assert agent.wait() == 86
    assert (agent.scratch / "saved").exists()


@pytest.mark.deep
def test_workers_of_a_rank_that_saves_are_left_to_it(own: Callable[..., Agent]) -> None:
    agent = own("saves_if_its_worker_lives")
    agent.awaited("running")
    agent.send(signal.SIGTERM)
    agent.awaited("saving")
    eventually(lambda: agent.status()["phase"] == "Saving", "whoever is asked has been asked")
    agent.mark("storage-is-back")
    assert agent.wait() == 86
    assert (agent.scratch / "saved").exists()


@LAUNCHERS
def test_grace_that_is_over_ends_what_does_not_leave(own: Callable[..., Agent], launcher: str) -> None:
    agent = own(launcher)
    pid = int(agent.awaited("running"))
    agent.send(signal.SIGTERM)
    agent.awaited("saving")
    agent.send(signal.SIGTERM)
    assert agent.wait() == 86
    assert not lives(pid)


@pytest.mark.parametrize("code", quick_first([3, 0]))
def test_an_end_that_nobody_asked_for_is_its_end_whatever_it_leaves_behind(
    own: Callable[..., Agent], code: int
) -> None:
    agent = own("leaves_one_behind", str(code))
    assert agent.wait() == code
    pid = int(agent.awaited("left"))
    eventually(lambda: not lives(pid), "what it left behind is ended")


@pytest.mark.deep
def test_its_word_about_a_gpu_is_understood(own: Callable[..., Agent]) -> None:
    agent = own("blames_its_gpu")
    agent.mark("fail")
    assert agent.wait() == 81
    assert "CUDA error: an illegal memory access" in agent.report()["summary"]


@pytest.mark.deep
def test_a_check_that_only_the_built_in_trainer_can_do_is_shown_as_such(
    own: Callable[..., Agent], agent: Agent
) -> None:
    agent.job["preflight"]["collective"] = True
    own("runs").awaited("running")
    check = next(check for check in agent.status()["preflight"] if check["name"] == "collective")
    assert check["result"] == "NotSupported"
    agent.mark("finish")
    assert agent.wait() == 0
