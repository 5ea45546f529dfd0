"""The checks before the ranks start, in a real agent: what stops a pod, and what /status and the log say of them."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvml_library
import pytest
from agent_process import lives

from oarlock_local.patience import eventually
from oarlock_local.pytest_tiers import quick_first

if TYPE_CHECKING:
    from agent_process import Agent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_library.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(agent: Agent, library: Path) -> Agent:
    """An agent of a pod with two GPUs, as far as NVML knows."""
    agent.environment["NVML_LIBRARY"] = str(library)
    agent.environment["OARLOCK_SIMULATE_GPUS"] = "0"
    agent.job["preflight"]["gpus"] = True
    return agent


def checks(status: dict[str, Any]) -> dict[str, Any]:
    return {check["name"]: check for check in status["preflight"]}


def test_each_check_is_in_status_and_log_with_its_result_and_its_milliseconds(gpus: Agent) -> None:
    gpus.job["preflight"]["clock"] = True
    gpus.start("trains_until_told")
    gpus.rank_pid(0)
    shown = checks(gpus.status())
    assert {name: check["result"] for name, check in shown.items()} == {
        "storage": "Passed",
        "clock": "NotSupported",
        "gpus": "Passed",
    }
    assert "this node's own clock" in shown["clock"]["detail"]
    assert all(check["milliseconds"] >= 0 for check in shown.values())
    logged = {line["check"]: line for line in gpus.log() if "check" in line}
    assert {name: (line["result"], line["milliseconds"], line["message"]) for name, line in logged.items()} == {
        name: (check["result"], check["milliseconds"], check["detail"]) for name, check in shown.items()
    }
    gpus.mark("finish")
    assert gpus.wait() == 0


def test_where_state_is_kept_in_memory_a_node_with_too_little_is_told_of_and_trains(
    agent: Agent, tmp_path: Path
) -> None:
    (tmp_path / "huge/transformer").mkdir(parents=True)
    with (tmp_path / "huge/transformer/weights.safetensors").open("wb") as file:
        file.truncate(10**13)
    agent.job["recovery"] = {"inPlace": "Auto", "memory": {"everySteps": "Auto"}}
    agent.job["training"] = {"model": {"path": str(tmp_path / "huge")}}
    agent.job["preflight"]["storage"] = False
    agent.start("trains_until_told")
    agent.rank_pid(0)
    shown = checks(agent.status())
    assert set(shown) == {"memory"}
    assert shown["memory"]["result"] == "Warning"
    assert "raise spec.pod.sharedMemory" in shown["memory"]["detail"]
    agent.mark("finish")
    assert agent.wait() == 0


def test_a_check_that_runs_is_shown_as_running_and_no_rank_starts_meanwhile(gpus: Agent) -> None:
    gpus.environment["FAKE_NVML"] = "hang"
    gpus.start("trains_until_told")
    eventually(lambda: checks(gpus.status())["storage"]["result"] == "Passed", "the storage check")
    status = gpus.status()
    assert status["phase"] == "Preflight"
    assert checks(status)["gpus"] == {"name": "gpus", "result": "Running", "milliseconds": None, "detail": ""}
    assert not list(gpus.scratch.glob("rank-*"))


def test_no_process_that_the_agent_starts_is_given_the_webhooks_secrets(gpus: Agent) -> None:
    gpus.environment |= {"OARLOCK_SECRET_CHAT_URL_0011223344556677": "hush", "FAKE_NVML": "hang", "MINE": "1"}
    gpus.start("trains_until_told", warm="fake_programs:slow_imports")
    programs = ("oarlock_trainer.ranks.rank_host", "oarlock_trainer.preflight.child", "oarlock_trainer.health.monitor")
    children: dict[str, str] = {}

    def all_run() -> bool:
        for pid in Path(f"/proc/{gpus.pid}/task/{gpus.pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # a check that is over
                words = Path(f"/proc/{pid}/cmdline").read_text()
                environment = Path(f"/proc/{pid}/environ").read_text()
                children.update({program: environment for program in programs if environment and program in words})
        return len(children) == len(programs)

    eventually(all_run, "the rank host, a check and the monitor")
    for environment in children.values():
        assert "MINE=1" in environment
        assert "hush" not in environment


def test_a_check_that_hangs_dies_with_the_agent(gpus: Agent) -> None:
    gpus.environment["FAKE_NVML"] = "hang"
    gpus.start("trains_until_told")

    def check() -> int | None:
        for pid in Path(f"/proc/{gpus.pid}/task/{gpus.pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # one that is over
                if "preflight.child" in Path(f"/proc/{pid}/cmdline").read_text():
                    return int(pid)
        return None

    eventually(lambda: checks(gpus.status())["storage"]["result"] == "Passed", "the storage check")
    hanging = eventually(check, "the check of the GPUs")
    gpus.send(signal.SIGKILL)
    eventually(lambda: not lives(hanging), "the end of the check")


def test_a_job_that_asks_for_no_check_shows_none(agent: Agent) -> None:
    agent.job["preflight"]["storage"] = False
    agent.start("trains_until_told")
    agent.rank_pid(0)
    assert agent.status()["preflight"] == []


def test_pretended_gpus_are_shown_as_not_checked(agent: Agent) -> None:
    agent.job["preflight"]["gpus"] = True
    agent.start("trains_until_told")
    agent.rank_pid(0)
    assert checks(agent.status())["gpus"]["result"] == "NotSupported"


def test_a_broken_gpu_ends_the_pod_with_87_and_the_report_names_it(gpus: Agent) -> None:
    gpus.environment["FAKE_NVML"] = "1:action=4"
    gpus.start("trains_until_told")
    assert gpus.wait() == 87
    report = gpus.report()
    assert (report["class"], report["firstErrorRank"]) == ("Preflight", None)
    assert report["gpu"] == {
        "index": 1,
        "uuid": "GPU-00000001",
        "serial": "165001",
        "pciBusId": "00000000:02:00.0",
        "name": "Pretended H100",
    }
    assert "on node node-1" in report["summary"]
    assert not list(gpus.scratch.glob("rank-*"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(
            "hang", "NVML did not answer within 2 s (spec.preflight.timeoutSeconds) on node node-1", id="hangs"
        ),
        pytest.param("crash", "NVML did not answer (its check was killed by SIGABRT) on node node-1", id="crashes"),
    ],
)
def test_an_nvml_that_hangs_or_crashes_ends_the_pod_with_87_and_blames_no_gpu(
    gpus: Agent, fault: str, words: str
) -> None:
    gpus.environment["FAKE_NVML"] = fault
    gpus.job["preflight"]["timeoutSeconds"] = 2 if fault == "hang" else 60
    gpus.job["preflight"]["storage"] = False  # which could be the slower of the two on a busy machine
    gpus.start("trains_until_told")
    assert gpus.wait() == 87
    assert (gpus.report()["gpu"], gpus.report()["class"]) == (None, "Preflight")
    assert words in gpus.report()["summary"]


def test_an_unusable_output_ends_with_84_before_any_rank_starts(agent: Agent) -> None:
    agent.output.parent.mkdir()
    agent.output.write_text("a file where a directory should be")
    agent.start("trains_until_told")
    assert agent.wait() == 84
    assert agent.report()["class"] == "Storage"
    assert not list(agent.scratch.glob("rank-*"))


def test_too_little_room_ends_with_84_and_the_numbers(agent: Agent) -> None:
    agent.job["min_free_bytes"] = 2**60
    agent.start("trains_until_told")
    assert agent.wait() == 84
    assert f"{2**60} bytes (1.049e+06 TiB) needed" in agent.report()["summary"]


@pytest.mark.parametrize(
    ("training", "fits"),
    quick_first(
        [
            ({"method": "Full"}, False),
            ({"method": "LoRA"}, True),
            ({"task": "Preprocess"}, True),
            ({"task": "Evaluate"}, True),
        ],
        2,
    ),
)
def test_room_for_checkpoints_as_large_as_the_model_is_asked_of_those_that_save_them(
    training: dict[str, Any], *, fits: bool, agent: Agent
) -> None:
    weights = agent.scratch / "model/transformer/a.safetensors"
    weights.parent.mkdir(parents=True)
    with weights.open("wb") as sparse:
        sparse.truncate(2**43)
    agent.job["training"] = {**training, "model": {"path": str(agent.scratch / "model")}, "checkpoint": {"keep": 5}}
    agent.start("leaves_its_environment")
    assert agent.wait() == (0 if fits else 84)


def test_storage_that_hangs_fails_the_preflight_in_time(agent: Agent) -> None:
    (agent.scratch / "hang").mkdir()
    (agent.scratch / "hang" / "sitecustomize.py").write_text(
        "import signal, sys\nwhile any('check\": \"storage' in word for word in sys.orig_argv): signal.pause()\n"
    )
    agent.environment["PYTHONPATH"] = f"{agent.scratch / 'hang'}:{agent.environment['PYTHONPATH']}"
    agent.job["preflight"]["timeoutSeconds"] = 1
    agent.start("trains_until_told")
    assert agent.wait() == 84
    assert "did not answer within 1 s" in agent.report()["summary"]


def test_a_job_that_switched_the_storage_check_off_starts_without_it(agent: Agent) -> None:
    agent.job["preflight"]["storage"] = False
    agent.job["min_free_bytes"] = 2**60
    agent.start("leaves_its_environment")
    assert agent.wait() == 0
