"""However a cluster ends, nothing of it stays on the machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oarlock_local import cluster as clusters
from oarlock_local import patience
from oarlock_local.addresses import Addresses
from oarlock_local.cgroups import hierarchies
from oarlock_local.machine import why_no_nodes
from oarlock_local.patience import eventually
from oarlock_local.processes import children

pytestmark = pytest.mark.nodes


@pytest.fixture(autouse=True)
def machine_with_nodes() -> None:
    if reason := why_no_nodes():
        pytest.skip(reason)


def _processes(state: Path) -> list[str]:
    """The processes that have to do with a state folder; nodes' processes have its path in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(state) in words and int(path.parent.name) != os.getpid():
            found.append(words)
    return found


def _kernel_objects(state: Path, slot: int) -> list[str]:
    """What vanishes with the processes: links, mounts."""
    links = [Addresses(slot).link] if Path("/sys/class/net", Addresses(slot).link).exists() else []
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(state) in line]
    return [*links, *mounts]


def _cgroups(slot: int) -> list[str]:
    return [str(path) for hierarchy in hierarchies() for path in hierarchy.glob(f"oarlock-{slot}-*")]


def _wait(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    eventually(condition, lambda: str(what()))


def _wait_until_gone(state: Path, slot: int) -> None:
    def left() -> list[str]:
        return _processes(state) + _kernel_objects(state, slot)

    _wait(lambda: not left(), left)


def test_down_leaves_nothing(tmp_path: Path) -> None:
    cluster = clusters.up("gone", nodes=1, state=tmp_path)
    slot = cluster.spec.slot
    assert _processes(tmp_path)
    assert _kernel_objects(tmp_path, slot)
    assert _cgroups(slot)
    clusters.down("gone", state=tmp_path)
    assert _processes(tmp_path) + _kernel_objects(tmp_path, slot) + _cgroups(slot) == []
    assert list(tmp_path.iterdir()) == []


def test_a_killed_supervisor_takes_everything_with_it(tmp_path: Path) -> None:
    cluster = clusters.up("killed", nodes=1, state=tmp_path)
    keeper = json.loads(cluster.spec.folder.supervisor.read_text())["pid"]
    os.kill(children(children(keeper)[0])[0], signal.SIGKILL)
    _wait_until_gone(tmp_path, cluster.spec.slot)
    assert _cgroups(cluster.spec.slot) == []
    clusters.down("killed", state=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_keeper_takes_every_process_with_it_and_down_clears_the_rest(tmp_path: Path) -> None:
    cluster = clusters.up("killed", nodes=1, state=tmp_path)
    os.kill(json.loads(cluster.spec.folder.supervisor.read_text())["pid"], signal.SIGKILL)
    _wait(lambda: not _processes(tmp_path), lambda: _processes(tmp_path))
    clusters.down("killed", state=tmp_path)
    slot = cluster.spec.slot
    assert _kernel_objects(tmp_path, slot) + _cgroups(slot) == []
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_ends_with_the_caller_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from oarlock_local.cluster import running\n"
        "with running('tied', nodes=1, state=pathlib.Path(sys.argv[1])) as cluster:\n"
        "    print(cluster.spec.slot, flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        slot = int(caller.stdout.readline())
        caller.kill()
    _wait_until_gone(tmp_path, slot)
    assert _cgroups(slot) == []
    assert not (tmp_path / "tied").exists()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("milestone", ["logs", "logs/kube-apiserver.log", "logs/node-1-kubelet.log"])
def test_ctrl_c_during_up_leaves_nothing(milestone: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "oarlock_local", "--state-dir", str(tmp_path), "up", "half", "--nodes", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
        _wait((tmp_path / "half" / milestone).exists, lambda: f"{milestone} never came")
        slot = json.loads((tmp_path / "half/cluster.json").read_text())["slot"] if "/" in milestone else None
        up.send_signal(signal.SIGINT)
        _, said = up.communicate(timeout=patience.SECONDS)
    # A shell shows 130 for both: an interpreter that was interrupted in the middle of an exec() ends itself by the signal.
    assert up.returncode in (130, -signal.SIGINT), said
    assert "interrupted" in said
    assert _processes(tmp_path) == []
    assert not (tmp_path / "half").exists()
    if slot is not None:
        assert _kernel_objects(tmp_path, slot) + _cgroups(slot) == []
