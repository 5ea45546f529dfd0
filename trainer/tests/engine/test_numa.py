"""Ranks near their GPUs: what sysfs says, what the pod has, and whose cores are set."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

from oarlock_trainer.engine import numa  # noqa: E402
from oarlock_trainer.preprocess.shares import threads_of  # noqa: E402
from oarlock_trainer.runtime.cgroup import cpu_limit  # noqa: E402

GPU = torch.device("cuda", 5)
ADDRESS = "0000:dc:00.0"
ALL = set(range(128))


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two sockets of 32 cores with two threads each; the GPU hangs on the second."""
    (tmp_path / f"bus/pci/devices/{ADDRESS}").mkdir(parents=True)
    (tmp_path / f"bus/pci/devices/{ADDRESS}/numa_node").write_text("1\n")
    for node, cores in enumerate(("0-31,64-95\n", "32-63,96-127\n")):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(cores)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-3\n", {0, 1, 2, 3}), ("0,2-3,9", {0, 2, 3, 9}), ("\n", set()), ("7", {7})],
)
def test_cores_are_read_as_the_kernel_lists_them(text: str, cores: set[int]) -> None:
    assert numa.parse_cores(text) == cores


def test_a_rank_gets_the_cores_of_its_gpus_node_that_the_pod_has(sysfs: Path) -> None:
    assert numa.near(ADDRESS, allowed=ALL, sysfs=sysfs) == set(range(32, 64)) | set(range(96, 128))
    assert numa.near(ADDRESS, allowed={0, 1, 40, 41}, sysfs=sysfs) == {40, 41}


def test_a_pod_without_a_core_there_keeps_those_that_it_has(sysfs: Path) -> None:
    assert numa.near(ADDRESS, allowed={0, 1}, sysfs=sysfs) == {0, 1}


@pytest.mark.parametrize("said", ["-1\n", "", "none\n", None])
def test_where_sysfs_says_nothing_nothing_is_changed(sysfs: Path, said: str | None) -> None:
    file = sysfs / f"bus/pci/devices/{ADDRESS}/numa_node"
    file.unlink() if said is None else file.write_text(said)
    assert numa.near(ADDRESS, allowed=ALL, sysfs=sysfs) == ALL


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """Thread -> the cores that it was given, on a machine of 128 cores with that GPU."""
    found: dict[int, set[int]] = {}
    place = SimpleNamespace(pci_domain_id=0, pci_bus_id=0xDC, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: place)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _thread: set(ALL))
    monkeypatch.setattr(os, "sched_setaffinity", found.__setitem__)
    return found


def threads() -> set[int]:
    """Those of this process that live."""
    return {int(thread.name) for thread in Path("/proc/self/task").iterdir()}


def test_every_thread_of_the_process_is_bound_and_so_are_those_that_come(
    sysfs: Path, bound: dict[int, set[int]]
) -> None:
    before = threads()
    cores = numa.pin(GPU, {}, sysfs=sysfs)
    assert cores == set(range(32, 64)) | set(range(96, 128))
    # Those of tests before this one may begin and end meanwhile.
    assert before & threads() <= bound.keys()
    assert os.getpid() in bound
    assert all(where == cores for where in bound.values())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_what_decodes_pictures_has_as_many_threads_as_without_it() -> None:
    """They are shared among the node's ranks by the cores that the pod has, which the ranks' parent still shows."""
    job: Any = SimpleNamespace(
        training=SimpleNamespace(data=SimpleNamespace(tuning=SimpleNamespace(workers=None))),
        rank_info=SimpleNamespace(local_world_size=1),
    )
    here, there = os.pipe()
    if (pid := os.fork()) == 0:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.write(there, str(threads_of(job)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    own = len(os.sched_getaffinity(0))
    assert int(os.read(here, 64)) == min(own, int(cpu_limit() or own))


@pytest.mark.parametrize(
    ("device", "environment"),
    [(torch.device("cpu"), {}), (GPU, {"ACCELERATE_CPU_AFFINITY": "0"}), (GPU, {"ACCELERATE_CPU_AFFINITY": "False"})],
)
def test_ranks_on_cpus_and_jobs_that_switch_it_off_stay_where_they_are(
    sysfs: Path, bound: dict[int, set[int]], device: torch.device, environment: dict[str, str]
) -> None:
    assert numa.pin(device, environment, sysfs=sysfs) == ALL
    assert bound == {}
