"""The network between nodes: what this pod has for InfiniBand, what NCCL's log says it took, and what follows."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oarlock_api.contract.status import CheckResult
from oarlock_local import patience
from oarlock_trainer.health.fabric import Fabric, NcclLog, network_of, read_fabric
from oarlock_trainer.preflight import network
from oarlock_trainer.preflight.collective.node_names import NodeNames
from oarlock_trainer.ranks import preload

preload.settle_environment()
from oarlock_trainer.preflight.collective.exercise import Times  # noqa: E402
from oarlock_trainer.preflight.collective.slow_network import slow_network  # noqa: E402 - reads the environment that was just settled

LOCKED = 8 << 20
FREE = Fabric(devices=("uverbs0",), lockable=None)
BOUND = Fabric(devices=("uverbs0",), lockable=LOCKED)
NONE = Fabric(devices=(), lockable=LOCKED)
NCCL_IB = """
gpu-01:27:27 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB eth0:10.0.0.2<0>
gpu-01:27:27 [0] NCCL INFO Initialized NET plugin IB
gpu-01:27:27 [0] NCCL INFO Assigned NET plugin IB to comm
gpu-01:27:99 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
"""
NCCL_SOCKET = """
gpu-01:27:27 [0] NCCL INFO NET/IB : No device found.
gpu-01:27:27 [0] NCCL INFO Using network Socket
gpu-01:27:99 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0
"""


@pytest.mark.parametrize(
    ("log", "network"),
    [
        (NCCL_IB, "IB with GPUDirect RDMA"),
        (NCCL_IB.replace("/GDRDMA", ""), "IB"),
        (NCCL_SOCKET, "Socket"),
        ("NCCL INFO Using network AWS Libfabric", "AWS Libfabric"),
        ("NCCL INFO Using network IB\nNCCL INFO Using network Socket\n", "Socket"),
        ("", ""),
    ],
)
def test_the_network_is_named_as_nccl_names_it(log: str, network: str) -> None:
    assert network_of(log) == network


def pod(root: Path, *, devices: int, capabilities: int = 0) -> Path:
    """What a pod shows of its devices and of this process's rights."""
    (root / "dev/infiniband").mkdir(parents=True)
    for number in range(devices):
        (root / f"dev/infiniband/uverbs{number}").touch()
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/status").write_text(f"Name:\tpython\nCapInh:\t{0:016x}\nCapEff:\t{capabilities:016x}\n")
    return root


@pytest.mark.parametrize(
    ("limit", "capabilities", "lockable"),
    [
        (LOCKED, 0, LOCKED),
        (LOCKED, 1 << 14, None),  # CAP_IPC_LOCK
        (LOCKED, ~(1 << 14) & 0xFFFF_FFFF, LOCKED),
        (resource.RLIM_INFINITY, 0, None),
    ],
)
def test_a_limit_counts_unless_it_is_lifted_or_the_right_to_lock_is_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, capabilities: int, lockable: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
    found = read_fabric(pod(tmp_path, devices=2, capabilities=capabilities))
    assert found == Fabric(devices=("uverbs0", "uverbs1"), lockable=lockable)


def test_a_pod_without_the_folders_has_no_infiniband(tmp_path: Path) -> None:
    assert read_fabric(tmp_path).devices == ()


def test_memory_that_cannot_be_locked_is_a_warning_that_says_what_to_set_on_the_node() -> None:
    finding = network.judge(BOUND, where=" on node gpu-01")
    assert (finding.result, finding.code) == (CheckResult.WARNING, 0)
    assert "on node gpu-01: InfiniBand is in the pod (uverbs0), and its processes may lock 8192 KiB" in finding.detail
    assert "set LimitMEMLOCK=infinity for containerd" in finding.detail


@pytest.mark.parametrize(
    ("fabric", "words"), [(FREE, "memory can be locked"), (NONE, "no InfiniBand is in this pod")], ids=["free", "none"]
)
def test_a_pod_that_can_use_what_it_has_passes(fabric: Fabric, words: str) -> None:
    finding = network.judge(fabric, where="")
    assert finding.result == CheckResult.PASSED
    assert words in finding.detail


@pytest.mark.parametrize(
    ("fabric", "took", "words"),
    [
        (BOUND, "Socket", "NCCL takes TCP. InfiniBand is in the pod (uverbs0), and its processes may lock 8192 KiB"),
        (FREE, "Socket", "NCCL takes TCP. InfiniBand is in the pod (uverbs0), and NCCL does not use it"),
        (BOUND, "IB", ""),
        (FREE, "", ""),
        (NONE, "Socket", ""),
    ],
)
def test_tcp_is_trouble_only_beside_infiniband(fabric: Fabric, took: str, words: str) -> None:
    said = fabric.trouble(took)
    assert said.startswith(words)
    assert bool(said) == bool(words)


def times(*, milliseconds: float, fabric: dict[int, str]) -> Times:
    return Times(
        ranks=32,
        mebibytes=256,
        all_reduce=milliseconds,
        ring={0: 1.0, 1: 1.0},
        networks={},
        fabric=fabric,
    )


NAMES = NodeNames({0: "gpu-00", 1: "gpu-01"})
BOTH = {0: "", 1: ""}


def test_bus_bandwidth_is_counted_as_nccl_tests_count_it() -> None:
    """algbw x 2 (n - 1) / n, in powers of ten."""
    assert times(milliseconds=1.0, fabric={}).bus_bandwidth == pytest.approx(268.435456 * 2 * 31 / 32)


@pytest.mark.parametrize(
    ("milliseconds", "fabric", "floor", "slow"),
    [
        (100.0, BOTH, None, True),
        (10.0, BOTH, None, False),
        (100.0, {0: ""}, None, False),  # one node has no InfiniBand: TCP is what there is
        (100.0, {}, None, False),
        (100.0, BOTH, 0, False),
        (10.0, {}, 100, True),
    ],
)
def test_the_floor_is_ten_where_all_have_infiniband_and_whatever_the_job_says(
    milliseconds: float, fabric: dict[int, str], floor: int | None, *, slow: bool
) -> None:
    said = slow_network(times(milliseconds=milliseconds, fabric=fabric), NAMES, floor=floor)
    assert bool(said) == slow
    assert ("spec.preflight.minBusBandwidth" in said) == slow


def test_nodes_in_the_same_trouble_are_named_together() -> None:
    said = slow_network(times(milliseconds=1.0, fabric={0: "NCCL takes TCP", 1: "NCCL takes TCP"}), NAMES, floor=None)
    assert said == "node 0 (gpu-00), node 1 (gpu-01): NCCL takes TCP"


def test_what_the_job_chose_of_nccls_log_stands() -> None:
    environment = {"NCCL_DEBUG": "WARN"}
    assert NcclLog(environment).network() == ""
    assert environment == {"NCCL_DEBUG": "WARN"}


def test_what_is_set_for_nccl_is_gone_once_it_has_been_read() -> None:
    environment = {"PATH": "/bin"}
    log = NcclLog(environment)
    assert environment["NCCL_DEBUG"] == "INFO"
    assert Path(environment["NCCL_DEBUG_FILE"]).write_text(NCCL_IB)
    assert log.network() == "IB with GPUDirect RDMA"
    assert environment == {"PATH": "/bin"}


def test_nccl_itself_writes_into_the_log_that_is_read() -> None:
    """The library that torch brings, as far as it goes without a GPU: its first words."""
    spec = find_spec("nvidia.nccl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("this torch brings no NCCL")
    library = Path(next(iter(spec.submodule_search_locations))) / "lib/libnccl.so.2"
    found = subprocess.run(
        [sys.executable, __file__, str(library)],
        env=_quiet(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.SECONDS,
    )
    assert "NCCL INFO" in found.stdout, found


def _quiet() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}


if __name__ == "__main__":
    log = NcclLog(os.environ)
    ctypes.CDLL(sys.argv[1]).ncclGetUniqueId(ctypes.create_string_buffer(128))
    assert log._file is not None
    sys.stdout.write(os.pread(log._file, 1 << 20, 0).decode())
