"""The first process of a node: makes the node's file systems, network and services, and keeps them running.

It is process 1 of the node's process namespace, so its death is the node's: the kernel kills containerd, the kubelet
and every container with it, and takes the node's mounts and links away. Starting it again is a reboot.
Its supervisor speaks to it by lines on stdin (`link`, `kubelet`) and hears `born` and `ready` on stdout.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from oarlock_local import gpus, mounts
from oarlock_local.addresses import SERVICES
from oarlock_local.folders import ClusterFolder
from oarlock_local.processes import start_logged
from oarlock_local.spec import ClusterSpec

_SOCKET = Path("/run/containerd/containerd.sock")
_RESTART_SECONDS = 1.0


def main() -> None:
    """Run the node; never returns by itself."""
    root, number = Path(sys.argv[1]), int(sys.argv[2])
    spec = ClusterSpec.load(ClusterFolder(root))
    _Node(spec, number).run()


class _Node:
    def __init__(self, spec: ClusterSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self.name = spec.node_names[number - 1]
        self.folder = spec.folder.node(self.name)
        self.services: dict[int, str] = {}

    def run(self) -> None:
        _say("born")
        socket.sethostname(self.name)
        self._make_file_systems()
        _expect("link")
        self._configure_network()
        self._start("containerd")
        self._import_images()
        _say("ready")
        _expect("kubelet")
        self._start("kubelet")
        self._reap_forever()

    def _make_file_systems(self) -> None:
        """Hide the machine's own /run and logs, and keep what kubelet and CNI write under /var/lib off the machine."""
        mounts.share_all()
        covered = [Path("/run"), Path("/var/log"), Path("/var/lib")]
        needed = [Path(path) for path in (self.spec.root, self.spec.binaries, *self.spec.shares)]
        # What the cluster itself needs from below those folders is kept in hand, and put back over the covers.
        kept = {
            path: os.open(path, os.O_PATH) for path in needed if any(path.is_relative_to(folder) for folder in covered)
        }
        mounts.fresh(Path("/run"))
        mounts.fresh(Path("/var/log"))
        mounts.overlay(Path("/var/lib"), Path("/run/var-lib"))
        for path, descriptor in kept.items():
            path.mkdir(parents=True, exist_ok=True)
            mounts.bind(Path(f"/proc/self/fd/{descriptor}"), path)
            os.close(descriptor)
        # The kubelet's disk under its usual name: below a deep state folder its sockets' paths would be too long.
        Path("/var/lib/kubelet").mkdir(exist_ok=True)
        mounts.bind(self.folder / "kubelet", Path("/var/lib/kubelet"))
        gpus.plug_in(self.spec, self.name)
        Path("/run/containerd").mkdir()
        Path("/var/log/pods").mkdir()

    def _configure_network(self) -> None:
        addresses = self.spec.addresses
        commands = [
            "link set lo up",
            f"addr add {addresses.node(self.number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {addresses.control_plane}",
        ]
        others = [other for other in range(1, self.spec.nodes + 1) if other != self.number]
        commands += [f"route add {addresses.pods(other)} via {addresses.node(other)}" for other in others]
        commands += [f"route add {SERVICES} via {addresses.control_plane}"]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(commands).encode(), check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _command(self, service: str) -> list[str]:
        if service == "containerd":
            return [self.spec.program("containerd"), "--config", f"{self.folder}/containerd.toml"]
        return [
            self.spec.program("kubelet"),
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.spec.folder.certificates}/{self.name}.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={self.spec.addresses.node(self.number)}",
        ]

    def _start(self, service: str) -> None:
        path = f"{self.spec.binaries}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        log = self.spec.folder.logs / f"{self.name}-{service}.log"
        process = start_logged(self._command(service), log, environ={"PATH": path})
        self.services[process.pid] = service

    def _import_images(self) -> None:
        """Import the archive into a fresh disk; images survive a reboot."""
        deadline = time.monotonic() + 60
        while not _accepts(_SOCKET):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: containerd does not answer; see its log in {self.spec.folder.logs}")
            self._reap(block=False)
            time.sleep(0.02)
        imported = self.folder / "images-imported"
        if not imported.exists():
            command = [self.spec.program("ctr"), "-a", str(_SOCKET), "-n", "k8s.io", "images", "import"]
            subprocess.run([*command, str(self.spec.folder.image)], check=True, stdout=sys.stderr)
            imported.touch()

    def _reap_forever(self) -> None:
        while True:
            self._reap(block=True)

    def _reap(self, *, block: bool) -> None:
        """Collect dead processes, orphans too; start a service again that ended."""
        try:
            pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
        except ChildProcessError:
            return
        if service := self.services.pop(pid, None):
            code = os.waitstatus_to_exitcode(status)
            sys.stderr.write(f"{self.name}: {service} ended with {code}; starting it again\n")
            time.sleep(_RESTART_SECONDS)
            self._start(service)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _expect(word: str) -> None:
    line = sys.stdin.readline().strip()
    if line != word:
        raise SystemExit(f"the supervisor said {line!r} instead of {word!r}: it is gone, or of another version")


if __name__ == "__main__":
    main()
