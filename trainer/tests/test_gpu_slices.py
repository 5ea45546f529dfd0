"""What the slices of a day with a GPU run, tried without one, and the page of figures that were made up here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from oarlock_local import patience

_BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(_BENCH))
import gpu_count  # noqa: E402 - bench/ is no package
import gpu_page  # noqa: E402
import gpu_results  # noqa: E402
import gpu_tests  # noqa: E402

sys.path.remove(str(_BENCH))

if TYPE_CHECKING:
    pass

JOB = "a job, compiled"
_STEP = {
    "facts": {"double": 4, "pixels": 1024, "batch": 1, "rounds": 20, "gpu": "NVIDIA H100", "torch": "2.13.0"},
    "results": {
        JOB: {
            "ms_per_image": 95.12, "mfu": 0.5, "peak_gb": 31.2, "all_blocks_ms_model": 451.8, "attention": "flash",
            "kernels": ["3.00 ms a kernel"],
        },
        "a job, eager": {"error": "does not fit"},
    },
}  # fmt: skip
_NETWORK = {
    "ranks": 32, "nodes": 4, "mebibytes": 256, "all_reduce": 1.5, "bus_bandwidth": 346.7, "ring": {"0": 1.0, "1": 2.0},
    "networks": {"0": "IB with GPUDirect RDMA"}, "fabric": {},
}  # fmt: skip
_TESTS = """<testsuites><testsuite>
<testcase name="test_a_mask_is_one" time="2.5"/>
<testcase name="test_memory" time="3"><properties><property name="peak" value="31 GB"/></properties></testcase>
<testcase name="test_contexts" time="0"><skipped message="needs two GPUs"/></testcase>
<testcase name="test_a_step" time="1"><failure message="assert 1 == 2"/></testcase>
</testsuite></testsuites>"""


def test_a_driver_that_does_not_answer_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", silent)
    assert gpu_count.gpus() == 0


def test_tests_that_failed_or_were_all_skipped_or_ended_are_tried_again_after_new_ones() -> None:
    passed, failed, skipped = ({"result": result} for result in ("passed", "failed", "skipped"))
    results = {
        "ended": gpu_tests._ENDED,
        "good": [passed, skipped],
        "bad": [passed, failed],
        "skipped": [skipped],
    }
    assert gpu_tests.left(["ended", "good", "bad", "skipped", "new"], results) == ["new", "bad", "skipped", "ended"]


def test_the_page_has_each_figure_and_what_failed_or_was_skipped_and_why() -> None:
    found = {
        "machine": {"GPUs": "8 x NVIDIA H100"},
        "step": _STEP,
        "network": _NETWORK,
        "tests": {"results": {"test_a.py": gpu_tests.read(_TESTS)}},
    }
    slices = {"block": {"state": "skipped", "seconds": 0.0, "why": "not installed: diffusers"}}
    lines = gpu_page.page([("block", "ms?", 8.0), ("xid", "XIDs?", 3.0)], slices, {}, found).splitlines()
    assert "| block | ms? | skipped | 0 of 480 | not installed: diffusers |" in lines
    assert "| xid | XIDs? | not begun | 0 of 180 |  |" in lines
    assert "| GPUs | 8 x NVIDIA H100 |" in lines
    assert "| a job, compiled | 95.1 | 50.0% | 31.2 | 452 | flash |" in lines
    assert "| a job, eager | does not fit |  |  |  |  |" in lines
    assert "- a job, compiled: 3.00 ms a kernel" in lines
    assert "| bus bandwidth | 346.7 GB/s |" in lines
    assert "| NCCL's network between nodes | IB with GPUDirect RDMA |" in lines
    assert "| test_a.py | a mask is one | passed |  | 2.5 |" in lines
    assert "| test_a.py | contexts | skipped | needs two GPUs | 0.0 |" in lines
    assert "| test_a.py | a step | **failed** | assert 1 == 2 | 1.0 |" in lines
    assert "| test_a.py | memory | passed | peak: 31 GB | 3.0 |" in lines
    assert not [line for line in lines if line.startswith("## Not tried")]


def test_contenders_that_crashed_or_were_ended_are_measured_again_after_new_ones_and_decide_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(_BENCH))
    import gpu_step  # noqa: PLC0415 - torch, for this test alone

    asked: list[tuple[str, int]] = []

    def alone(name: str, double: int, _: object) -> dict[str, Any]:
        asked.append((name, double))
        if name == "a job, eager" and len(asked) == 3:
            raise KeyboardInterrupt
        if double == 19:
            return {"error": "does not fit"}
        return {"error": "ended without a word", "crashed": -6} if "diffusers" in name else dict(_STEP["results"][JOB])

    monkeypatch.setattr(gpu_step, "_alone", alone)
    monkeypatch.setattr(gpu_step.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu_step.torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    names = ["diffusers, eager", "a job, eager", JOB]
    monkeypatch.setattr(sys, "argv", ["", "--result", str(tmp_path / "step.json"), "--only", *names])
    with pytest.raises(KeyboardInterrupt):
        gpu_step.main()
    assert gpu_step.main() == 1
    first, others = [("diffusers, eager", 19), ("diffusers, eager", 12)], [(name, 12) for name in names]
    assert asked == [*first, others[1], others[2], others[0], others[1]]
    assert "crashed" not in gpu_results.results(tmp_path / "step.json")["a job, eager"]


def test_a_file_that_is_not_what_the_page_knows_costs_its_own_section_alone() -> None:
    found = {"machine": {"GPUs": "1 x NVIDIA H200"}, "step": {"facts": {}}, "network": {"told": "one GPU"}}
    found["checkpoint"] = {"rounds": {"ours": [{"s": 1.0}, {"s": 2.0}]}, "parameters": 1e9, "ranks": 1}
    lines = gpu_page.page([], {}, {}, found).splitlines()
    assert "What was found is not what this page knows: KeyError('results')." in lines
    assert "one GPU" in lines
    assert "| ours | 2 | 1.500 |" in lines


def test_a_page_without_a_gpu_says_what_was_not_tried() -> None:
    lines = gpu_page.page([], {}, {}, {"machine": {"GPUs": "none: RuntimeError: no driver"}}).splitlines()
    assert lines[lines.index("## Not tried, for want of a GPU") + 4 :] == [f"- {one}" for one in gpu_page.UNTRIED]


def test_the_exchange_is_measured_by_any_ranks_a_dry_run_on_the_cpu_shows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program = [sys.executable, str(_BENCH / "gpu_network.py"), "--cpus", "2", "--master", f"127.0.0.1:{port}"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, check=False, timeout=patience.SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks of 1 nodes: " in done.stdout


@pytest.mark.deep
def test_a_job_trains_and_resumes_under_the_agent_a_dry_run_on_the_cpu_shows(tmp_path: Path) -> None:
    program = [sys.executable, str(_BENCH / "gpu_trains.py"), "--cpu", "--result", str(tmp_path / "found.json")]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = json.loads((tmp_path / "found.json").read_text()).values()
    assert [(one["code"], one["steps"], one["first step"]) for one in found] == [(0, 20, 1), (0, 20, 21)]
