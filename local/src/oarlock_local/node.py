"""One node as its supervisor sees it: boot it, cut its link, stop its kubelet, hurt its GPUs, kill it.

The node's network, mounts, processes, host name and IPC are its own; its disk is a folder that outlives a reboot.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from oarlock_local import cgroups, gpus, nvml
from oarlock_local.errors import ClusterError
from oarlock_local.image import USERLAND_IMAGE
from oarlock_local.network import ip
from oarlock_local.nvml import GpuFault
from oarlock_local.processes import children, die_with_parent, program_of
from oarlock_local.spec import ClusterSpec


class Node:
    """A node that is off until `boot`."""

    def __init__(self, spec: ClusterSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self.name = spec.node_names[number - 1]
        self._link = f"node{number}"
        self._outer: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the node is on."""
        return self._outer is not None and self._outer.poll() is None

    def boot(self) -> None:
        """Start the node's first process and plug its link in; services follow by themselves."""
        if self.running:
            raise ClusterError(f"{self.name} is running already. `fault ... reboot {self.name}` kills it first.")
        cgroups.create(cgroups.tree_name(self.spec.slot, self.name))
        log = self.spec.folder.logs / f"{self.name}.log"
        with log.open("ab") as output:
            self._outer = subprocess.Popen(
                [
                    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc"),
                    *("--fork", "--kill-child", "--mount-proc"),
                    *(sys.executable, "-m", "oarlock_local.node_init", self.spec.root, str(self.number)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                # Safe: single-threaded, and prctl allocates nothing.
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )

    def plug_in(self) -> None:
        """Give the booting node its link; returns when the node has its namespaces."""
        outer = self._expect("born")
        hardware = self.spec.addresses.hardware(self.number)
        ip(f"link add {self._link} type veth peer name eth0 address {hardware} netns {outer.pid}")
        ip(f"link set {self._link} master cluster up")
        self._say("link")

    def start_kubelet(self) -> None:
        """Let the node join the cluster; returns when containerd is up and has the images."""
        self._expect("ready")
        self._say("kubelet")

    def kill(self) -> None:
        """Switch the node off, as by its plug; returns when none of its processes is left."""
        if self._outer is None or not self.running:
            raise ClusterError(f"{self.name} is off already. `fault ... start {self.name}` starts it.")
        os.kill(self._init(), signal.SIGKILL)
        # The kernel lets the first process of a namespace be collected only after all the others are gone.
        self._outer.wait()
        self._outer = None
        ip(f"link del {self._link}", missing_ok=True)
        cgroups.remove(cgroups.tree_name(self.spec.slot, self.name))

    def switch_on(self) -> None:
        """Boot a node of a running cluster; returns when its kubelet has been started."""
        self.boot()
        self.plug_in()
        self.start_kubelet()

    def reboot(self) -> None:
        """Switch the node off and on."""
        self.kill()
        self.switch_on()

    def cut(self) -> None:
        """Take the node's link down: it goes on working, unheard."""
        ip(f"link set {self._link} down")

    def heal(self) -> None:
        """Take the node's link up again."""
        ip(f"link set {self._link} up")

    def signal_kubelet(self, number: signal.Signals) -> None:
        """Send a signal to the node's kubelet."""
        os.kill(self._service("kubelet"), number)

    def hurt_gpu(self, fault: GpuFault) -> None:
        """Do a fault to one of the node's GPUs."""
        self._know_gpu(fault.get("gpu", 0))
        self._gpus().inject(**fault)

    def mend_gpus(self, which: GpuFault) -> None:
        """Make one of the node's GPUs healthy, or all where `gpu` is not said."""
        control = self._gpus()
        if (gpu := which.get("gpu")) is None:
            control.clear()
            control.set(f"gpus={self.spec.gpus}")
        else:
            self._know_gpu(gpu)
            control.clear(f"{gpu}:")

    def kill_container(self, container: str) -> None:
        """Kill the first process of a container, by the container's id."""
        self._ctr("tasks", "kill", "-s", "SIGKILL", container)

    def import_images(self, archive: Path) -> None:
        """Import an OCI or Docker archive."""
        self._ctr("images", "import", str(archive))

    def name_userland(self, name: str) -> None:
        """Give the host userland image one more name."""
        self._ctr("images", "tag", "--force", USERLAND_IMAGE, name)

    def _ctr(self, *arguments: str) -> None:
        socket = f"/proc/{self._init()}/root/run/containerd/containerd.sock"
        command = [self.spec.program("ctr"), "-a", socket, "-n", "k8s.io", *arguments]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode != 0:
            raise ClusterError(f"{self.name}: ctr {' '.join(arguments)}: {result.stderr.strip()}")

    def _gpus(self) -> nvml.Control:
        if not gpus.are_pretended(self.spec):
            raise ClusterError(
                f"{self.name} has no pretended GPUs: they need a C compiler, and a cluster that was started with "
                "`oarlock-local up --gpus G`."
            )
        return gpus.control_of(self._init())

    def _know_gpu(self, gpu: int) -> None:
        if not 0 <= gpu < self.spec.gpus:
            raise ClusterError(f"{self.name} has no GPU {gpu}: it has {self.spec.gpus}, counted from 0.")

    def _init(self) -> int:
        if self._outer is None or not (found := children(self._outer.pid)):
            raise ClusterError(f"{self.name} is off. `fault ... start {self.name}` starts it.")
        return found[0]

    def _service(self, name: str) -> int:
        for pid in children(self._init()):
            if program_of(pid) == name:
                return pid
        raise ClusterError(f"{name} is not running on {self.name}; see {self.spec.folder.logs}/{self.name}.log.")

    def _say(self, word: str) -> None:
        if self._outer and self._outer.stdin:
            self._outer.stdin.write(f"{word}\n".encode())
            self._outer.stdin.flush()

    def _expect(self, word: str) -> subprocess.Popen[bytes]:
        if self._outer is None or self._outer.stdout is None:
            raise ClusterError(f"{self.name} is off.")
        if (line := self._outer.stdout.readline().strip().decode()) != word:
            log = self.spec.folder.logs / f"{self.name}.log"
            last = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise ClusterError(f"{self.name} did not start: {line!r} instead of {word!r}. Its log, {log}:\n{last}")
        return self._outer
