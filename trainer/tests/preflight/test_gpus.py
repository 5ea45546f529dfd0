"""The check of GPUs, with nvidia-ml-py's own binding against a library that pretends GPUs and their faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nvml_library
import pytest

from oarlock_api.contract.report import Gpu
from oarlock_trainer.preflight import driver
from oarlock_trainer.preflight.finding import Finding, parse_line

_ASK = """
import sys
from oarlock_trainer.preflight import gpus
found = gpus.find(
    expected=int(sys.argv[1]), node="gpu-03", cuda=sys.argv[2], patience=3.0, pause=lambda seconds: None
)
sys.stdout.buffer.write(found.to_line())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_library.build(tmp_path_factory.mktemp("nvml"))


def find(library: Path, faults: str, *, expected: int = 2, cuda: str = "") -> Finding:
    """What the check finds, in a process of its own as in a pod."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(expected), cuda],
        env={**os.environ, "NVML_LIBRARY": str(library), "FAKE_NVML": faults},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    finding = parse_line(done.stdout.strip())
    assert finding is not None
    return finding


def test_gpus_that_are_there_healthy_and_idle_pass(library: Path) -> None:
    finding = find(library, "gpus=8", expected=8)
    assert (finding.result, finding.code, finding.gpu) == ("Passed", 0, None)
    assert finding.detail == "GPUs: 8 are there on node gpu-03, healthy and idle"


def test_what_a_driver_does_not_know_is_told_and_is_no_fault(library: Path) -> None:
    finding = find(library, "old")
    assert (finding.result, finding.code) == ("Passed", 0)
    assert "not known here: recovery action" in finding.detail


def test_a_driver_that_is_too_old_for_the_images_cuda_is_told_with_the_one_it_needs(library: Path) -> None:
    finding = find(library, "old", cuda="13.0")
    assert (finding.result, finding.code, finding.gpu) == ("Failed", 87, None)
    assert (
        "on node gpu-03: the driver 550.90.07 is too old for this image's CUDA 13.0, which needs 580" in finding.detail
    )


@pytest.mark.parametrize(("faults", "cuda"), [("", "13.0"), ("old", "12.8"), ("old", "")])
def test_a_driver_that_is_new_enough_or_cannot_be_held_against_anything_passes(
    library: Path, faults: str, cuda: str
) -> None:
    assert find(library, faults, cuda=cuda).code == 0


def test_a_compatibility_package_makes_an_older_driver_new_enough() -> None:
    assert driver.too_old("550.90.07", "13.0", runs=13000) == ""
    assert driver.too_old("550.90.07", "13.0", runs=12040) != ""


@pytest.mark.parametrize("version", ["", "unknown"])
def test_a_driver_without_a_version_that_can_be_read_is_not_blamed(version: str) -> None:
    assert driver.too_old(version, "13.0", runs=None) == ""


def test_the_cuda_of_torch_is_what_torch_says_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.version.cuda or '')"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert driver.torch_cuda() == done.stdout.strip()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param("1:gone", "is lost: it has fallen off the bus", id="lost"),
        pytest.param("1:error=16", "must be reset", id="says that it must be reset"),
        pytest.param("1:action=1", "must be reset, says the driver (recovery action 1)", id="reset"),
        pytest.param("1:action=2", "must have its node rebooted", id="reboot"),
        pytest.param("1:action=3", "must be drained", id="drain"),
        pytest.param("1:action=4", "must be drained and reset", id="drain and reset"),
    ],
)
def test_a_gpu_that_the_driver_speaks_against_is_named_by_all_its_names(library: Path, fault: str, words: str) -> None:
    finding = find(library, fault)
    assert (finding.result, finding.code) == ("Failed", 87)
    assert words in finding.detail
    assert finding.gpu is not None
    assert (finding.gpu.index, finding.gpu.uuid, finding.gpu.pci_bus_id) == (1, "GPU-00000001", "00000000:02:00.0")
    assert finding.gpu.serial == ("165001" if "action" in fault else "")
    assert "GPU 1 (GPU-00000001" in finding.detail


def test_a_gpu_without_a_handle_is_named_by_its_index(library: Path) -> None:
    finding = find(library, "1:lost")
    assert (finding.code, finding.gpu) == (87, Gpu(index=1))


def test_a_gpu_that_is_lost_for_a_moment_is_not_to_blame(library: Path) -> None:
    assert find(library, "1:once").result == "Passed"


@pytest.mark.parametrize(
    ("faults", "expected", "words"),
    [
        pytest.param("gpus=7", 8, "7 of 8 are there on node gpu-03", id="too few"),
        pytest.param("noinit=999", 2, "NVML does not answer on node gpu-03", id="NVML fails"),
        pytest.param("noinit=18", 2, "NVML does not answer", id="driver and library differ"),
        pytest.param(
            "1:error=999", 2, "NVML has no answer on node gpu-03 about GPU 1 (GPU-00000001", id="one is silent"
        ),
        pytest.param("1:action=5", 2, "IMEX domain", id="IMEX domain"),
        pytest.param("1:used=2048", 2, "somebody else uses 2.0 GiB of GPU 1 (GPU-00000001", id="in use"),
    ],
)
def test_what_is_no_fault_of_a_gpu_makes_the_node_unfit_and_names_none(
    library: Path, faults: str, expected: int, words: str
) -> None:
    finding = find(library, faults, expected=expected)
    assert (finding.result, finding.code, finding.gpu) == ("Failed", 87, None)
    assert words in finding.detail


def test_memory_that_a_dying_process_still_holds_is_waited_for(library: Path) -> None:
    assert find(library, "0:freed=70000").result == "Passed"


def test_the_drivers_own_share_of_memory_is_not_somebodys_use_of_it(library: Path) -> None:
    assert find(library, "old 0:used=400").result == "Passed"


@pytest.mark.parametrize(
    ("faults", "words"),
    [("0:process", "1 compute processes on GPU 0"), ("0:action=42", "asks for action 42, which is new to us")],
)
def test_what_is_odd_and_stops_nothing_is_a_warning(library: Path, faults: str, words: str) -> None:
    finding = find(library, faults)
    assert (finding.result, finding.code) == ("Warning", 0)
    assert words in finding.detail


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param("gpus=8 7:gone", 4, id="a pod that sees all GPUs of its node"),
        pytest.param("gpus=1 0:mig", 2, id="partitioned GPUs"),
    ],
)
def test_where_it_cannot_be_told_which_gpus_are_the_pods_nothing_is_judged(
    library: Path, faults: str, expected: int
) -> None:
    finding = find(library, faults, expected=expected)
    assert (finding.result, finding.code, finding.gpu) == ("NotSupported", 0, None)


def test_a_container_without_nvml_is_told_as_one_whose_gpus_are_not_checked(tmp_path: Path) -> None:
    hidden = tmp_path / "libnvidia-ml.so.1"
    hidden.write_text("no library")
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, "2", ""],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "NVML_LIBRARY": str(hidden)},
        capture_output=True,
        check=True,
    )
    finding = parse_line(asked.stdout.strip())
    assert finding is not None
    assert (finding.result, finding.code) == ("NotSupported", 0)


def test_people_can_ask_too(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "oarlock_trainer", "check-gpus", "2"],
        env={**os.environ, "NVML_LIBRARY": str(library), "FAKE_NVML": "1:action=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 87
    assert "GPU 1 (GPU-00000001, serial 165001" in done.stdout
