"""The page of figures that a machine with GPUs writes, from figures that were made up here."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from oarlock_local import patience

_BENCH = Path(__file__).parents[2] / "bench"
_STEP = {
    "facts": {"blocks": 12, "pixels": 1024, "batch": 1, "rounds": 20, "gpu": "NVIDIA H100", "torch": "2.13.0"},
    "results": {
        "a job, compiled": {
            "ms_per_image": 95.12, "mfu": 0.5, "peak_gb": 31.2, "all_blocks_ms_model": 451.8, "attention": "flash",
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


def _page(**known: Any) -> str:
    spec = importlib.util.spec_from_file_location("gpu_page", _BENCH / "gpu_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page({"GPUs": "8 x NVIDIA H100"}, **known))


def test_the_page_has_each_figure_and_what_failed_or_was_skipped_and_why() -> None:
    lines = _page(step=_STEP, network=_NETWORK, tests=_TESTS).splitlines()
    assert "| GPUs | 8 x NVIDIA H100 |" in lines
    assert "| a job, compiled | 95.1 | 50.0% | 31.2 | 452 | flash |" in lines
    assert "| a job, eager | does not fit |  |  |  |  |" in lines
    assert "| bus bandwidth | 346.7 GB/s |" in lines
    assert "| NCCL's network between nodes | IB with GPUDirect RDMA |" in lines
    assert "| a mask is one | passed |  | 2.5 |" in lines
    assert "| contexts | skipped: needs two GPUs |  | 0.0 |" in lines
    assert "| a step | **failed** |  | 1.0 |" in lines
    assert "| memory | passed | peak: 31 GB | 3.0 |" in lines


def test_what_was_not_measured_is_not_on_the_page() -> None:
    assert [line for line in _page().splitlines() if line.startswith("## ")] == ["## Machine"]


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
