"""Nodes have pretended GPUs: pods ask about them through unmodified nvidia-ml-py, and a reboot mends them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oarlock_local import gpus, nvml
from oarlock_local.cluster import Cluster
from oarlock_local.errors import ClusterError, LocalError
from oarlock_local.patience import eventually
from oarlock_local.spec import ClusterSpec

from .pods import apply, output, python_pod, wait_for_phase

OPEN = """
    import ctypes, json, os
    import pynvml
    ctypes.CDLL(os.environ["NVML_LIBRARY"])  # nvidia-ml-py then gets this one, by its soname
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
"""
WATCH = f"""{OPEN}
    events = pynvml.nvmlEventSetCreate()
    for handle in handles:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    print("watching", flush=True)
    event = pynvml.nvmlEventSetWait_v2(events, 60_000)
    print(json.dumps([pynvml.nvmlDeviceGetUUID(event.device), event.eventData]))
"""
ASK = f"""{OPEN}
    def asked(handle):
        try:
            pynvml.nvmlDeviceGetSerial(handle)
        except pynvml.NVMLError as error:
            return error.value
        [value] = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        return "needs action" if value.value.uiVal else "healthy"
    try:
        open("/run/oarlock-nvml/control", "a")
        print("a pod may change what its GPUs say")
    except OSError:
        print(json.dumps({{pynvml.nvmlDeviceGetUUID(handle): asked(handle) for handle in handles}}))
"""


@pytest.fixture
def cluster(local_cluster: Cluster) -> Iterator[Cluster]:
    if reason := nvml.why_no_library():
        pytest.skip(reason)
    yield local_cluster
    local_cluster.kubectl("delete", "pods", "--selector=gang=g")
    for node in local_cluster.nodes:
        local_cluster.fault("mend-gpu", node)


def run(cluster: Cluster, name: str, program: str, node: str) -> Any:
    apply(cluster, python_pod(name, program, node=node))
    return json.loads(output(cluster, name))


@pytest.mark.nodes
def test_a_pod_hears_of_an_xid_and_a_reboot_brings_the_gpu_back(cluster: Cluster) -> None:
    apply(cluster, python_pod("watcher", WATCH, node="node-2"))
    wait_for_phase(cluster, "watcher", "Running")
    eventually(lambda: "watching" in cluster.kubectl("logs", "watcher"), "a pod that watches")
    cluster.fault("gpu", "node-2", gpu=1, xid=79)
    assert json.loads(output(cluster, "watcher").splitlines()[1]) == ["GPU-node-2-00000001", 79]
    assert run(cluster, "before", ASK, "node-2") == {"GPU-node-2-00000000": "healthy", "GPU-node-2-00000001": 15}
    assert set(run(cluster, "other", ASK, "node-1").items()) == {
        ("GPU-node-1-00000000", "healthy"),
        ("GPU-node-1-00000001", "healthy"),
    }
    cluster.fault("reboot", "node-2")
    healthy = {"GPU-node-2-00000000": "healthy", "GPU-node-2-00000001": "healthy"}
    assert run(cluster, "after", ASK, "node-2") == healthy


@pytest.mark.nodes
def test_gpus_are_mended_one_by_one_or_all(cluster: Cluster) -> None:
    cluster.fault("gpu", "node-1", recovery_action=2)
    cluster.fault("gpu", "node-1", gpu=1, recovery_action=4)
    cluster.fault("mend-gpu", "node-1", gpu=0)
    answers = [run(cluster, "one", ASK, "node-1")]
    cluster.fault("mend-gpu", "node-1")
    answers.append(run(cluster, "all", ASK, "node-1"))
    assert [list(answer.values()) for answer in answers] == [["healthy", "needs action"], ["healthy", "healthy"]]


@pytest.mark.nodes
def test_what_a_node_does_not_have_cannot_be_hurt(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="node-1 has no GPU 2: it has 2"):
        cluster.fault("gpu", "node-1", gpu=2, xid=79)
    with pytest.raises(ClusterError, match="say what happens"):
        cluster.fault("gpu", "node-1")
    with pytest.raises(LocalError, match="cut does not take xid"):
        cluster.fault("cut", "node-1", xid=79)
    with pytest.raises(LocalError, match="mend-gpu does not take xid"):
        cluster.fault("mend-gpu", "node-1", xid=79)


def spec_in(folder: Path, count: int) -> ClusterSpec:
    return ClusterSpec(root=str(folder), slot=0, binaries="", nodes=1, gpus=count, shares=(), images=())


def test_pods_of_a_cluster_without_gpus_see_none_of_it(tmp_path: Path) -> None:
    base: dict[str, Any] = {"mounts": [], "process": {"env": ["PATH=/bin"]}}
    gpus.share(spec_in(tmp_path, 0), base)
    assert base == {"mounts": [], "process": {"env": ["PATH=/bin"]}}


def test_without_a_c_compiler_gpus_are_only_advertised_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    spec = spec_in(tmp_path, 8)
    assert "no C compiler" in (gpus.prepare(spec.folder) or "")
    assert not gpus.are_pretended(spec)
