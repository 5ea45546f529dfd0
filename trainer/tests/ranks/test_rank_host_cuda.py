"""No rank is forked where anything has initialized CUDA: a driver that only counts calls stands in for NVIDIA's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pod_environment import of_pod

if TYPE_CHECKING:
    from collections.abc import Mapping

_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
static int ready;
int cuInit(unsigned flags) {
    FILE *calls = fopen(getenv("CUDA_CALLS"), "a");
    if (calls) { fputs("cuInit\\n", calls); fclose(calls); }
    ready = 1;
    return (int)flags;
}
int cuDeviceGetCount(int *count) { *count = 8; return ready ? 0 : 3; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long flags, int *status) {
    (void)name; (void)version; (void)flags; (void)status;
    *found = (void *)cuInit;
    return 0;
}
"""
_NVML = "int nvmlInit(void) { return 0; }\nint nvmlDeviceGetCount_v2(unsigned *count) { *count = 8; return 0; }\n"
_IMPORTS = "from oarlock_trainer.ranks import preload\npreload.import_everything(encoders=True)\n"
_FORK = """
from oarlock_trainer.ranks import rank_host
ranks = rank_host.ForkedRanks(lambda: 7)
ranks.start([{"RANK": "0"}])
while not (ended := ranks.reap()):
    pass
print(ended)
"""


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda.so.1 that notes who initializes it, and an NVML that counts eight GPUs."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler for a driver to pretend")
    folder = tmp_path_factory.mktemp("drivers")
    for name, source in (("libcuda.so.1", _DRIVER), ("libnvidia-ml.so.1", _NVML)):
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(folder / name), "-"]
        subprocess.run(command, input=source, text=True, check=True)
    return folder


def run(drivers: Path, program: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A process that finds these drivers, and what it asked of them."""
    calls = drivers / "calls"
    calls.write_text("")
    environment = os.environ | variables | {"LD_LIBRARY_PATH": str(drivers), "CUDA_CALLS": str(calls)}
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=_without(environment)
    )
    return done, calls.read_text().split()


def _without(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != "CUDA_VISIBLE_DEVICES"}


def test_what_any_library_did_to_cuda_before_the_fork_is_refused(drivers: Path) -> None:
    done, calls = run(drivers, f"import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n{_FORK}")
    assert "an import initialized CUDA in the rank host" in done.stderr
    assert (done.stdout, calls) == ("", ["cuInit"])


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_a_driver_that_is_only_loaded_disturbs_no_fork(drivers: Path, library: str) -> None:
    done, calls = run(drivers, f"import ctypes\nctypes.CDLL({library!r})\n{_FORK}")
    assert (done.stdout, calls) == ("[(0, 7)]\n", []), done.stderr


def test_asking_whether_cuda_is_initialized_loads_no_driver(drivers: Path) -> None:
    done, _ = run(drivers, f"{_FORK}\nprint('libcuda' in open('/proc/self/maps').read())")
    assert done.stdout == "[(0, 7)]\nFalse\n", done.stderr


def test_nothing_that_the_rank_host_imports_initializes_cuda(drivers: Path, tmp_path: Path) -> None:
    done, calls = run(drivers, _IMPORTS + _FORK, **of_pod(gpus=8) | {"OARLOCK_OUTPUT_DIR": str(tmp_path)})
    assert (done.stdout.splitlines()[-1:], calls) == (["[(0, 7)]"], []), done.stderr


@pytest.mark.gpu
def test_on_a_gpu_cuda_s_own_driver_says_whether_it_was_initialized() -> None:
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("no CUDA GPU")
    for first, code in (
        ("", 0),
        (_IMPORTS, 0),  # NVML may be open by then, and is no CUDA
        ("import torch\ntorch.cuda.device_count()\n", 0),
        ("import torch\ntorch.cuda.init()\n", 1),
    ):
        command = [sys.executable, "-c", first + _FORK]
        done = subprocess.run(command, check=False, env=of_pod(gpus=1), capture_output=True, text=True)
        forked = [] if code else ["[(0, 7)]"]
        assert (done.returncode, done.stdout.splitlines()[-1:]) == (code, forked), first + done.stderr
