"""What has to be built from the Go modules under `go/`, and under which names it is called afterwards.

Versions and checksums are in each module's go.mod and go.sum. Nothing here runs anything.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

KUBERNETES_VERSION = "v1.36.3"
CONTAINERD_VERSION = "2.4.2"

_KUBERNETES_FLAGS = " ".join(
    [
        f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "-X k8s.io/component-base/version.gitMajor=1",
        f"-X k8s.io/component-base/version.gitMinor={KUBERNETES_VERSION.split('.')[1]}",
    ]
)
_CONTAINERD = "github.com/containerd/containerd/v2"
_CONTAINERD_TAGS = ("no_btrfs", "no_devmapper", "no_zfs", "no_tracing")
_CNI = "github.com/containernetworking/plugins/plugins"


@dataclass(frozen=True, slots=True)
class Part:
    """One binary: the module and the package that it is built from, and the names that lead to it."""

    binary: str
    module: str
    package: str = "."
    tags: tuple[str, ...] = ()
    link_flags: str = ""
    cgo: bool = False
    names: tuple[str, ...] = field(default=())
    """Further names of the same binary, as symbolic links beside it."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names that it is called by."""
        return self.names or (self.binary,)


KUBERNETES = Part(
    binary="kubernetes",
    module="kubernetes",
    link_flags=_KUBERNETES_FLAGS,
    names=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
)


HELM = Part(binary="helm", module="helm", package="helm.sh/helm/v4/cmd/helm")
"""Not part of a cluster: it installs charts into one."""

HELM_3 = Part(binary="helm3", module="helm3", package="helm.sh/helm/v3/cmd/helm")
"""The helm before the current one: charts are installed with both."""

HELM_DOCS = Part(binary="helm-docs", module="helm-docs", package="github.com/norwoodj/helm-docs/cmd/helm-docs")
"""Not part of a cluster: it writes the README of a chart from its values."""

KWOK = Part(binary="kwok", module="kwok", package="sigs.k8s.io/kwok/cmd/kwok")
"""Not part of a cluster: it plays the kubelets of a thousand nodes that are not there. Only benchmarks need it."""

PROMTOOL = Part(
    binary="promtool",
    module="promtool",
    package="github.com/prometheus/prometheus/cmd/promtool",
    # Without the clients of every cloud in which Prometheus finds targets: nothing here looks for any.
    tags=("remove_all_sd",),
)
"""Not part of a cluster: Prometheus' own judge of alerts, for tests."""

VERSITYGW = Part(binary="versitygw", module="versitygw", package="github.com/versity/versitygw/cmd/versitygw")
"""Not part of a cluster: it serves a folder as an S3 service, for tests."""

ARGO_RULES = Part(binary="argo-rules", module="argo")
"""Not part of a cluster: it judges objects as Argo Workflows and Argo CD do, for tests."""

KUEUE = Part(binary="kueue", module="kueue", package="sigs.k8s.io/kueue/cmd/kueue")
"""Not part of a cluster: it queues pods, for tests that ask for it."""

JOBSET = Part(binary="jobset", module="jobset", package="sigs.k8s.io/jobset")
"""Not part of a cluster: it makes gangs of Jobs. Only benchmarks need it."""

COSCHEDULING = Part(binary="coscheduling", module="coscheduling", package="sigs.k8s.io/scheduler-plugins/cmd/scheduler")
"""Not part of a cluster: a scheduler with the plugin Coscheduling, for tests that ask for it."""

VOLCANO_SCHEDULER = Part(binary="vc-scheduler", module="volcano", package="volcano.sh/volcano/cmd/scheduler")
"""Not part of a cluster: it places gangs, for tests that ask for it."""

VOLCANO_CONTROLLERS = Part(
    binary="vc-controller-manager", module="volcano", package="volcano.sh/volcano/cmd/controller-manager"
)
"""What opens Volcano's queues, for the same tests."""


def control_plane_parts() -> tuple[Part, ...]:
    """What a control plane without nodes needs."""
    return (KUBERNETES,)


def node_parts(*, seccomp: bool) -> tuple[Part, ...]:
    """What a cluster with nodes needs; without libseccomp, runc can enforce no profiles, and is told to drop them."""
    containerd = tuple(
        Part(
            binary=name,
            module="containerd",
            package=f"{_CONTAINERD}/cmd/{name}",
            tags=_CONTAINERD_TAGS,
            link_flags=f"-X {_CONTAINERD}/version.Version={CONTAINERD_VERSION}",
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    )
    runc = "github.com/opencontainers/runc"
    return (
        KUBERNETES,
        *containerd,
        Part(binary="runc-plain", module="runc", package=runc, tags=("seccomp",) if seccomp else (), cgo=True),
        Part(
            binary="runc",
            module="node",
            package="./runc",
            link_flags=f"-X main.dropSeccomp={'false' if seccomp else 'true'}",
        ),
        *(
            Part(binary=package.rpartition("/")[2], module="cni", package=f"{_CNI}/{package}")
            for package in ("main/bridge", "main/loopback", "ipam/host-local")
        ),
        Part(binary="coredns", module="coredns"),
        Part(binary="pause", module="node", package="./pause"),
    )


def modules_folder() -> Path:
    """The Go modules: inside an installed package, or beside `src/` in the repository."""
    here = Path(__file__).parent
    installed = here / "go"
    return installed if installed.is_dir() else here.parents[1] / "go"


def cache_key(modules: Path, parts: Sequence[Part]) -> str:
    """Sixteen hexadecimal digits that change whenever a source, a version or the way of building `parts` changes."""
    digest = hashlib.sha256()
    for module in sorted({part.module for part in parts}):
        for path in sorted((modules / module).rglob("*")):
            if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
                digest.update(path.relative_to(modules).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]
