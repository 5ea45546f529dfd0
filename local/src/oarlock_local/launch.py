"""From nothing to a running cluster: what `up` does on this machine.

Whatever happens between the first and the last line of `launch`, even SIGKILL, the supervisor sees the end of the
lifetime pipe and ends the cluster.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from oarlock_local import gpus, network
from oarlock_local.addresses import MOST_NODES, Addresses
from oarlock_local.api import ApiServer
from oarlock_local.audit import write_policy
from oarlock_local.build import binaries, enforces_seccomp
from oarlock_local.bytecode import compile_sources
from oarlock_local.certificates import write_all
from oarlock_local.errors import ClusterError, LocalError
from oarlock_local.folders import ClusterFolder
from oarlock_local.image import USERLAND_IMAGE, full_name, write_archive
from oarlock_local.lifetime import DETACH, END, LINKED
from oarlock_local.machine import require
from oarlock_local.node_config import write_base_spec, write_node
from oarlock_local.objects import advertise_gpus, create_objects
from oarlock_local.processes import children, interrupts_held, remember
from oarlock_local.slots import COUNT, lease_any
from oarlock_local.spec import ClusterSpec
from oarlock_local.teardown import END_SECONDS, clear_machine, lock_or_refuse, remove_leftovers, take_down

Report = Callable[[str], None]
_READY_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Wish:
    """What to launch."""

    nodes: int
    gpus: int = 0
    shares: Sequence[Path] = ()
    images: Sequence[str] = ()
    guard_owners: bool = False
    stock_controllers: bool = False


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

    def end(self, *, keep_folder: bool = False) -> None:
        """Take the cluster down and remove all traces, except the folder with its logs if that is wanted."""
        if keep_folder:
            # A supervisor that has ended by itself reads no more.
            with suppress(BrokenPipeError):
                os.write(self.lifetime, f"{END}\n".encode())
        os.close(self.lifetime)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if keep_folder:
            clear_machine(self.spec.folder)
        else:
            take_down(self.spec.folder)


def launch(folder: ClusterFolder, wish: Wish, report: Report) -> Launched:
    """Start a cluster and wait until it is ready; raises LocalError, leaving nothing, where it does not start."""
    if not 0 <= wish.nodes <= MOST_NODES:
        raise LocalError(f"--nodes {wish.nodes}: a local cluster has 0 to {MOST_NODES} nodes.")
    require(nodes=wish.nodes > 0)
    programs = binaries(nodes=wish.nodes > 0)
    if wish.nodes and not enforces_seccomp(programs):
        report("runc is built without libseccomp: seccomp profiles of pods are accepted, but not enforced")
    lock = lock_or_refuse(folder)
    with ExitStack() as held:
        try:
            remove_leftovers(folder)
            # A Ctrl-C between the start of the supervisor and our knowing it would leave nobody to wait for its end.
            held.enter_context(interrupts_held())
            launched = _start(folder, wish, programs, lock, report)
        except BaseException:
            shutil.rmtree(folder.root, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        try:
            held.close()
            _await(launched, report)
        except LocalError:
            # The message points to the logs: they stay until the next `up` or `down` of that name.
            launched.end(keep_folder=True)
            raise
        except BaseException:
            launched.end()
            raise
    return launched


def _start(folder: ClusterFolder, wish: Wish, programs: Path, lock: int, report: Report) -> Launched:
    usable = [number for number in range(COUNT) if not wish.nodes or not network.is_routed(Addresses(number))]
    number, slot = lease_any(usable)
    with slot:
        spec = _prepare(folder, wish, programs, number, report)
        return _start_supervisor(spec, [slot.fileno(), lock])


def _prepare(folder: ClusterFolder, wish: Wish, programs: Path, slot: int, report: Report) -> ClusterSpec:
    spec = ClusterSpec(
        root=str(folder.root),
        slot=slot,
        binaries=str(programs),
        nodes=wish.nodes,
        gpus=wish.gpus,
        shares=tuple(str(path) for path in _with_targets(wish.shares)),
        images=(USERLAND_IMAGE, *(full_name(name) for name in wish.images)),
        guard_owners=wish.guard_owners,
        stock_controllers=wish.stock_controllers,
    )
    for path in (folder.root, folder.logs, folder.volumes):
        path.mkdir(parents=True)
    spec.save()
    write_all(spec)
    write_policy(folder.audit_policy)
    if wish.nodes:
        if wish.gpus and (reason := gpus.prepare(folder)):
            report(reason)
        write_archive(folder.image, pause=programs / "pause", userland_names=spec.images, environ=userland_environ())
        compile_sources(Path(share) for share in spec.shares)
        write_base_spec(spec)
        for node in range(1, wish.nodes + 1):
            write_node(spec, node)
    return spec


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
    # A control plane alone leaves nothing that its supervisor would not clear, so it needs no keeper.
    module = "oarlock_local.keeper" if spec.nodes else "oarlock_local.supervisor"
    handed_on = [readable, *keep_open]
    with (spec.folder.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, spec.root, *map(str, handed_on)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=handed_on,
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
        network.make_uplink(spec.addresses, children(launched.process.pid)[0])
        os.write(launched.lifetime, f"{LINKED}\n".encode())
    _expect(news, "up", spec)
    report("API server ready")
    with ApiServer(spec.folder.kubeconfig) as api:
        if spec.nodes:
            create_objects(api, spec)
            _wait(lambda: len(ready_nodes(api)) == spec.nodes, "not all nodes became Ready", spec)
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


def ready_nodes(api: ApiServer) -> list[str]:
    """The names of the nodes that are Ready."""
    return [
        node["metadata"]["name"]
        for node in api.get("/api/v1/nodes")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    ]


def _wait(condition: Callable[[], bool], what: str, spec: ClusterSpec) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            last = "".join(_last_lines(spec.folder.logs / f"{name}-kubelet.log") for name in spec.node_names)
            raise ClusterError(
                f"{what} within {_READY_SECONDS} s; the logs are in {spec.folder.logs}.{last}{remedy(last)}"
            )
        time.sleep(0.05)


def remedy(last_words: str) -> str:
    """What to do about a kubelet's last words where this machine is the cause, on a line of its own; else nothing."""
    if "inotify_init: too many open files" not in last_words:
        return ""
    # A cluster of three nodes was seen to hold 33; most distributions allow 128 for each user.
    return (
        "\nThis machine's inotify instances are used up, of which each node needs ten: take another cluster down"
        " (oarlock-local status lists them), or allow more (sysctl -w fs.inotify.max_user_instances=512)."
    )


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-2:] if log.exists() else ["never started"]
    return "".join(f"\n  {log.name}: {line}" for line in lines)
