"""From nothing to a running cluster, and from a cluster to nothing: what `up` and `down` do on this machine.

A cluster's lock file is locked by its supervisor for as long as it lives, so `is_alive` is never wrong, and two `up`
of one name cannot both succeed. Whatever happens between the first and the last line of `launch`, the supervisor
sees the end of the lifetime pipe and ends the cluster.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from oarlock_local import cgroups, control, network
from oarlock_local.addresses import MOST_NODES, Addresses
from oarlock_local.api import ApiServer
from oarlock_local.build import binaries, enforces_seccomp
from oarlock_local.certificates import write_all
from oarlock_local.errors import ClusterError, LocalError
from oarlock_local.folders import ClusterFolder
from oarlock_local.image import USERLAND_IMAGE, write_archive
from oarlock_local.lifetime import DETACH, LINKED
from oarlock_local.machine import require
from oarlock_local.node_config import write_base_spec, write_node
from oarlock_local.objects import advertise_gpus, create_objects
from oarlock_local.processes import kill_remembered, remember
from oarlock_local.slots import COUNT, lease_any
from oarlock_local.spec import ClusterSpec

Report = Callable[[str], None]
_READY_SECONDS = 120
_END_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Wish:
    """What to launch."""

    nodes: int
    gpus: int = 0
    shares: Sequence[Path] = ()
    images: Sequence[str] = ()


@dataclass(slots=True)
class Launched:
    """A running cluster whose life hangs on this process until `detach` or `end`."""

    spec: ClusterSpec
    process: subprocess.Popen[bytes]
    lifetime: int

    def detach(self) -> None:
        """Let the cluster outlive this process."""
        os.write(self.lifetime, f"{DETACH}\n".encode())
        os.close(self.lifetime)

    def end(self) -> None:
        """Take the cluster down and remove all traces."""
        os.close(self.lifetime)
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        take_down(self.spec.folder)


def launch(folder: ClusterFolder, wish: Wish, report: Report) -> Launched:
    """Start a cluster and wait until it is ready; raises LocalError, leaving nothing, where it does not start."""
    if not 0 <= wish.nodes <= MOST_NODES:
        raise LocalError(f"--nodes {wish.nodes}: a local cluster has 0 to {MOST_NODES} nodes.")
    require(nodes=wish.nodes > 0)
    programs = binaries(nodes=wish.nodes > 0)
    if wish.nodes and not enforces_seccomp(programs):
        report("runc is built without libseccomp: seccomp profiles of pods are accepted, but not enforced")
    lock = _lock(folder)
    try:
        _remove_leftovers(folder)
        spec, slot = _prepare(folder, wish, programs)
        with slot:
            launched = _start_supervisor(spec, [slot.fileno(), lock])
    finally:
        os.close(lock)
    try:
        _await(launched, report)
    except BaseException:
        launched.end()
        raise
    return launched


def is_alive(folder: ClusterFolder) -> bool:
    """Whether any process of the cluster is left."""
    try:
        descriptor = os.open(folder.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def take_down(folder: ClusterFolder) -> None:
    """End the cluster, alive or not, and remove everything that it left; nothing to do is fine."""
    if is_alive(folder):
        try:
            control.ask(folder.control_socket, {"do": "stop"}, seconds=5)
        except LocalError:
            # It ends without an answer, or cannot answer; what counts is whether it is gone.
            _wait_for_end(folder, 2)
    if not _wait_for_end(folder, _END_SECONDS / 2):
        kill_remembered(folder.supervisor)
        if not _wait_for_end(folder, _END_SECONDS):
            raise ClusterError(f"processes of cluster {folder.name!r} do not end; they keep {folder.lock} open.")
    _remove_leftovers(folder)
    folder.lock.unlink(missing_ok=True)


def _wait_for_end(folder: ClusterFolder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _lock(folder: ClusterFolder) -> int:
    folder.root.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ClusterError(
            f"cluster {folder.name!r} is up already (or starting): `oarlock-local status` shows it, "
            f"`oarlock-local down {folder.name}` ends it, and another name makes another cluster."
        ) from None
    return descriptor


def _remove_leftovers(folder: ClusterFolder) -> None:
    if os.geteuid() == 0:
        if folder.spec.exists() and shutil.which("ip"):
            network.remove_uplink(ClusterSpec.load(folder).addresses)
        cgroups.sweep()
    if folder.root.exists():
        shutil.rmtree(folder.root)


def _prepare(folder: ClusterFolder, wish: Wish, programs: Path) -> tuple[ClusterSpec, socket.socket]:
    usable = range(COUNT) if not wish.nodes else [n for n in range(COUNT) if not network.is_routed(Addresses(n))]
    number, slot = lease_any(usable)
    spec = ClusterSpec(
        root=str(folder.root),
        slot=number,
        binaries=str(programs),
        nodes=wish.nodes,
        gpus=wish.gpus,
        shares=tuple(str(path) for path in _with_targets(wish.shares)),
        images=(USERLAND_IMAGE, *wish.images),
    )
    for path in (folder.root, folder.logs, folder.volumes):
        path.mkdir(parents=True)
    spec.save()
    write_all(spec)
    if wish.nodes:
        write_archive(
            folder.image, pause=programs / "pause", userland_names=spec.images, environ=userland_environ()
        )
        write_base_spec(spec)
        for node in range(1, wish.nodes + 1):
            write_node(spec, node)
    return spec, slot


def default_shares() -> list[Path]:
    """This Python: its installation and its virtual environment."""
    return [Path(sys.base_prefix), Path(sys.prefix)]


def userland_environ() -> dict[str, str]:
    """The environment of a container of the host userland image: this very Python comes first on the PATH."""
    folders = [f"{sys.prefix}/bin", f"{sys.base_prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"]
    return {"PATH": ":".join(dict.fromkeys(folders)), "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


def _with_targets(shares: Sequence[Path]) -> list[Path]:
    """Those folders, and where they are links, what they lead to: programs in them may use either path."""
    found = [path for share in shares for path in (share.absolute(), share.resolve())]
    for path in found:
        if not path.exists():
            raise LocalError(f"--share {path}: there is no such folder.")
    return list(dict.fromkeys(found))


def _start_supervisor(spec: ClusterSpec, keep_open: Sequence[int]) -> Launched:
    readable, writable = os.pipe()
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [sys.executable, "-m", "oarlock_local.supervisor", spec.root, str(readable)]
    with (spec.folder.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [*namespaces, *command] if spec.nodes else command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[readable, *keep_open],
            # Ctrl-C is for us: we end the supervisor in good order.
            start_new_session=True,
        )
    os.close(readable)
    remember(process.pid, spec.folder.supervisor)
    return Launched(spec, process, writable)


def _await(launched: Launched, report: Report) -> None:
    spec = launched.spec
    news = launched.process.stdout
    assert news is not None  # noqa: S101 - it is a pipe, see above
    if spec.nodes:
        _expect(news, "born", spec)
        network.make_uplink(spec.addresses, launched.process.pid)
        os.write(launched.lifetime, f"{LINKED}\n".encode())
    _expect(news, "up", spec)
    report("API server ready")
    with ApiServer(spec.folder.kubeconfig) as api:
        if spec.nodes:
            create_objects(api, spec)
            _wait(lambda: len(_ready_nodes(api)) == spec.nodes, "the nodes did not become Ready", spec)
            if spec.gpus:
                for node in spec.node_names:
                    advertise_gpus(api, node, spec.gpus)
        # Without it the first pod of a hasty user would be refused.
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        _wait(lambda: bool(api.get(accounts)["items"]), "the default ServiceAccount was not created", spec)


def _expect(news: IO[bytes], word: str, spec: ClusterSpec) -> None:
    line = news.readline().decode().rstrip("\n").replace("\r", "\n")
    if line == word:
        return
    if line.startswith("error "):
        raise ClusterError(f"cluster {spec.folder.name!r} did not start: {line.removeprefix('error ')}")
    log = (spec.folder.logs / "supervisor.log").read_text(errors="replace")
    raise ClusterError(f"cluster {spec.folder.name!r} did not start: its supervisor died.\n{log[-3000:]}")


def _ready_nodes(api: ApiServer) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in api.get("/api/v1/nodes")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    ]


def _wait(condition: Callable[[], bool], what: str, spec: ClusterSpec) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} within {_READY_SECONDS} s; the logs are in {spec.folder.logs}.")
        time.sleep(0.05)
