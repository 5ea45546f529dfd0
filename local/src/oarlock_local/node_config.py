"""The configuration files of one node: containerd's, CNI's, the kubelet's, and the base spec of host userland.

The runtime class `host-userland` is a second containerd runtime whose base spec binds folders of this machine into
every container, read-only, each at its own path. So a pod needs no image build and no hostPath volumes to run this
machine's Python.
"""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from oarlock_local import gpus
from oarlock_local.addresses import DOMAIN
from oarlock_local.cgroups import tree_name
from oarlock_local.image import PAUSE_IMAGE, USR_LINKS
from oarlock_local.spec import ClusterSpec

USERLAND_RUNTIME = "host-userland"
# What the loader, Debian's alternatives and OpenSSL need from /etc to make sense of /usr.
_ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf")
_OVERLAYFS = "overlay"


def write_node(spec: ClusterSpec, number: int) -> None:
    """Write the files of node 1, 2, ... into its folder."""
    name = spec.node_names[number - 1]
    folder = spec.folder.node(name)
    for part in ("containerd", "kubelet", "cni"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd(spec, folder))
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(spec, number)))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(spec, name)))
    (folder / "resolv.conf").write_text("# pods get the cluster's DNS\n")


def write_base_spec(spec: ClusterSpec) -> None:
    """Write the base spec of the runtime class `host-userland`: containerd's default one, and what is shared."""
    default = subprocess.run([spec.program("ctr"), "oci", "spec"], check=True, capture_output=True).stdout
    base = json.loads(default)
    base["mounts"] += [
        {"destination": path, "source": path, "type": "bind", "options": ["rbind", "ro", "nosuid", "nodev"]}
        for path in _shared_paths(spec.shares)
    ]
    gpus.share(spec, base)
    _base_spec(spec).write_text(json.dumps(base))


def _base_spec(spec: ClusterSpec) -> Path:
    return spec.folder.root / "host-userland.json"


def _shared_paths(shares: Iterable[str]) -> list[str]:
    linked = [f"/{name}" for name in USR_LINKS if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    wanted = {"/usr", *linked, *(path for path in _ETC if Path(path).exists()), *shares}
    return sorted(path for path in wanted if not any(Path(path).is_relative_to(other) for other in wanted - {path}))


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on, as /proc/self/mounts calls it."""
    best, kind = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, fstype, *_ = line.split()
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fstype
    return kind


def _containerd(spec: ClusterSpec, folder: Path) -> str:
    # overlayfs cannot have its upper folder on overlayfs, which is what a container's own root usually is.
    snapshotter = "native" if _file_system(folder) == _OVERLAYFS else "overlayfs"
    runtimes = "".join(
        f"""
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{runtime}]
  runtime_type = "io.containerd.runc.v2"
  {base_spec}
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{runtime}.options]
    BinaryName = "{spec.program("runc")}"
    SystemdCgroup = false
"""
        for runtime, base_spec in (("runc", ""), (USERLAND_RUNTIME, f'base_runtime_spec = "{_base_spec(spec)}"'))
    )
    return f"""\
version = 3
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{snapshotter}"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{spec.binaries}"]
    conf_dir = "{folder}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
{runtimes}"""


def _cni(spec: ClusterSpec, number: int) -> dict[str, object]:
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                "ipam": {
                    "type": "host-local",
                    # Under /run, so that a reboot of the node gives back the addresses of the pods that it killed.
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": spec.addresses.pods(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _kubelet(spec: ClusterSpec, name: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{spec.folder.certificates}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [spec.addresses.control_plane],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": f"{spec.folder.node(name)}/resolv.conf",
        "podLogsDir": "/var/log/pods",
        # cgroups: each node has its own tree; kubelet 1.36 still runs on v1 when told so.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{tree_name(spec.slot, name)}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": ["pods"],
        # This machine's own settings, which a node among several must not change or demand.
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "protectKernelDefaults": False,
        "makeIPTablesUtilChains": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # Heartbeats to match the controller manager's grace period.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "nodeLeaseDurationSeconds": 8,
        # A full disk or memory of the machine is the machine's matter: evict nothing unless it is nearly dead.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "imageMinimumGCAge": "24h",
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "maxPods": 110,
        "shutdownGracePeriod": "0s",
    }
