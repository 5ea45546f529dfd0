"""The Python interface of local clusters.

    with running("test", nodes=3, gpus=2) as cluster:
        cluster.kubectl("apply", "-f", "job.yaml")
        cluster.fault("cut", "node-2")

Inside `running` the cluster lives exactly as long as the block, and never longer than this process. `up` leaves it
running for other processes, which get it by `find`.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from oarlock_local import control
from oarlock_local.api import ApiServer
from oarlock_local.errors import ClusterError, LocalError
from oarlock_local.faults import FAULTS, Target
from oarlock_local.folders import ClusterFolder
from oarlock_local.image import full_name
from oarlock_local.launch import Report, Wish, default_shares, launch
from oarlock_local.nvml import GpuFault
from oarlock_local.spec import ClusterSpec
from oarlock_local.teardown import is_alive, take_down

_CONTAINER_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    spec: ClusterSpec

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.spec.folder.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.spec.folder.kubeconfig

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return self.spec.node_names

    @property
    def host_address(self) -> str:
        """This machine's address, as pods see it: a server of a test must listen there to be reached by pods."""
        return self.spec.addresses.host if self.spec.nodes else self.spec.addresses.control_plane

    @property
    def logs(self) -> Path:
        """The folder with one log per process of the cluster."""
        return self.spec.folder.logs

    @property
    def audit_log(self) -> Path:
        """What ServiceAccounts asked the API server for, one JSON object of audit.k8s.io a line."""
        return self.spec.folder.audit_log

    @property
    def kubectl_path(self) -> Path:
        """The kubectl that was built with the cluster."""
        return Path(self.spec.program("kubectl"))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it prints; raises ClusterError with what it complains of."""
        result = subprocess.run(
            [self.kubectl_path, "--kubeconfig", self.kubeconfig, *arguments],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
        )
        if result.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Make or change objects, on the server's side; raises ClusterError with what it complains of."""
        listed = {"apiVersion": "v1", "kind": "List", "items": [dict(item) for item in objects]}
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))

    def fault(self, kind: str, target: str = "", **what: Unpack[GpuFault]) -> None:
        """Do a fault of `faults.FAULTS` to a node, or to NAMESPACE/POD[/CONTAINER]; returns when it is done.

        `what` is for GPUs alone: `fault("gpu", "node-1", gpu=3, xid=79)`, `fault("mend-gpu", "node-1", gpu=3)`.
        """
        if kind not in FAULTS:
            raise LocalError(f"there is no fault {kind!r}; there are {', '.join(FAULTS)}.")
        if not target and FAULTS[kind].target is not Target.API_SERVER:
            raise LocalError(
                f"{kind} needs a target: oarlock-local fault {self.name} {kind} {FAULTS[kind].target.value}; "
                f"the nodes are {', '.join(self.nodes) or 'none'}."
            )
        if unfit := what.keys() - FAULTS[kind].options:
            raise LocalError(f"{kind} does not take {', '.join(sorted(unfit))}: see `oarlock-local fault --help`.")
        request: dict[str, Any]
        match FAULTS[kind].target:
            case Target.NODE:
                request = {"node": target}
            case Target.GPU:
                request = {"node": target, "gpu": what}
            case Target.CONTAINER:
                request = self._container(target)
            case Target.API_SERVER:
                request = {}
        control.ask(self.spec.folder.control_socket, {"do": kind, **request})
        if kind == "restart-apiserver":
            self._wait_for_api_server()

    def volume(self, claim: str, namespace: str = "default", *, seconds: float = 10) -> Path:
        """The folder of this machine that a claim of the class `shared` got; waits for it to be bound."""
        deadline = time.monotonic() + seconds
        with ApiServer(self.kubeconfig) as api:
            while True:
                found = api.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
                if found is None:
                    raise ClusterError(
                        f"there is no claim {namespace}/{claim} in cluster {self.name!r}: `oarlock-local kubectl "
                        f"{self.name} -- get pvc -A` lists those that are, named NAMESPACE/CLAIM here."
                    )
                if name := found["spec"].get("volumeName"):
                    volume = api.get(f"/api/v1/persistentvolumes/{name}")
                    return Path(volume["spec"]["hostPath"]["path"])
                if time.monotonic() > deadline:
                    raise ClusterError(f"claim {namespace}/{claim} is {found['status']['phase']}, bound to no volume.")
                time.sleep(0.05)

    def load(self, archive: Path) -> None:
        """Import an OCI or Docker archive into every running node."""
        request = {"do": "load", "archive": str(archive.absolute())}
        control.ask(self.spec.folder.control_socket, request, seconds=600)

    def tag(self, image: str) -> None:
        """Give the host userland image one more name on every running node."""
        control.ask(self.spec.folder.control_socket, {"do": "tag", "image": full_name(image)})

    def _wait_for_api_server(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        with ApiServer(self.kubeconfig) as api:
            while not api.is_ready():
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"the API server of {self.name!r} is not back after {seconds:g} s; see {self.logs}."
                    )
                time.sleep(0.05)

    def _container(self, target: str) -> dict[str, str]:
        namespace, _, rest = target.partition("/")
        pod, _, container = rest.partition("/")
        if not pod:
            raise LocalError(f"{target!r}: name the container as {Target.CONTAINER.value}.")
        with ApiServer(self.kubeconfig) as api:
            found = api.find(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        if found is None:
            raise ClusterError(f"there is no pod {pod!r} in the namespace {namespace!r} of cluster {self.name!r}.")
        running = {
            status["name"]: status["containerID"].removeprefix("containerd://")
            for group in _CONTAINER_STATUSES
            for status in found["status"].get(group, [])
            if "running" in status["state"]
        }
        wanted = container or found["spec"]["containers"][0]["name"]
        if wanted not in running:
            raise ClusterError(f"{target}: no container {wanted!r} is running there; running: {sorted(running)}.")
        return {"node": found["spec"]["nodeName"], "container": running[wanted]}


def _silent(_news: str) -> None:
    pass


@contextmanager
def running(
    name: str,
    *,
    nodes: int,
    gpus: int = 0,
    shares: Sequence[Path] | None = None,
    images: Sequence[str] = (),
    guard_owners: bool = False,
    stock_controllers: bool = False,
    state: Path | None = None,
    report: Report = _silent,
) -> Iterator[Cluster]:
    """Run a cluster for the length of the block.

    `nodes` 0 is a control plane alone, which needs no root. `shares` are folders of this machine for pods of the
    runtime class `host-userland`, by default this Python's; `images` further names of `oarlock.local/host:1`;
    `guard_owners` and `stock_controllers` as in ClusterSpec. Raises MachineError where this machine cannot do it, with
    the reason.
    """
    wish = Wish(
        nodes=nodes,
        gpus=gpus,
        shares=default_shares() if shares is None else shares,
        images=images,
        guard_owners=guard_owners,
        stock_controllers=stock_controllers,
    )
    launched = launch(ClusterFolder.of(name, state), wish, report)
    try:
        yield Cluster(launched.spec)
    finally:
        launched.end()


def up(
    name: str,
    *,
    nodes: int,
    gpus: int = 0,
    shares: Sequence[Path] | None = None,
    images: Sequence[str] = (),
    state: Path | None = None,
    report: Report = _silent,
) -> Cluster:
    """Start a cluster that stays until `down`; the arguments are those of `running`."""
    wish = Wish(nodes=nodes, gpus=gpus, shares=default_shares() if shares is None else shares, images=images)
    launched = launch(ClusterFolder.of(name, state), wish, report)
    launched.detach()
    return Cluster(launched.spec)


def find(name: str, *, state: Path | None = None) -> Cluster:
    """The running cluster of that name; raises ClusterError where there is none."""
    folder = ClusterFolder.of(name, state)
    cluster = Cluster(ClusterSpec.load(folder))
    if not is_alive(folder):
        raise ClusterError(f"cluster {name!r} has died. `oarlock-local down {name}` clears what it left.")
    return cluster


def down(name: str, *, state: Path | None = None) -> bool:
    """Take a cluster down, alive or dead, and remove everything of it; False where there is none, which is fine."""
    return take_down(ClusterFolder.of(name, state))
