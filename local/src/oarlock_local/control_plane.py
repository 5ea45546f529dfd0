"""The command lines of the control plane's processes.

They are those of an ordinary cluster (RBAC, the default admission plugins, Pod Security), with differences that a cluster
for tests wants: etcd does not wait for the disk, nobody elects a leader among one, a silent node counts as lost after 15
seconds instead of 50, and of ServiceAccounts it is logged what they ask for. As on OpenShift, who makes an owner undeletable
needs a right to it. Where there are no nodes, only somebody's fake ones can come: those send
next to no heartbeats, and are left alone for an hour.
"""

from oarlock_local.addresses import DOMAIN, SERVICES
from oarlock_local.spec import ClusterSpec

NODE_GRACE_SECONDS = 15
FAKE_NODE_GRACE_SECONDS = 3600
# etcd's ports are not reachable from other machines or clusters: they listen on the loopback only.
_ETCD_CLIENT_PORT = 2379
_ETCD_PEER_PORT = 2380


def _etcd_host(spec: ClusterSpec) -> str:
    # Inside its own network namespace the plain loopback address is free; elsewhere each cluster has its own.
    return spec.addresses.control_plane if spec.addresses.loopback_only else "127.0.0.1"


def etcd(spec: ClusterSpec) -> list[str]:
    """The store. It loses its last writes in a power failure: the cluster does not outlive one anyway."""
    client = f"http://{_etcd_host(spec)}:{_ETCD_CLIENT_PORT}"
    peer = f"http://{_etcd_host(spec)}:{_ETCD_PEER_PORT}"
    return [
        spec.program("etcd"),
        f"--data-dir={spec.folder.etcd}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
    ]


def api_server(spec: ClusterSpec) -> list[str]:
    """The API server, in a cluster with nodes on every address: the Service's own one too, so no proxy is needed."""
    pki = spec.folder.certificates
    addresses = spec.addresses
    plugins = ["NodeRestriction", *(["OwnerReferencesPermissionEnforcement"] if spec.guard_owners else [])]
    command = [
        spec.program("kube-apiserver"),
        f"--etcd-servers=http://{_etcd_host(spec)}:{_ETCD_CLIENT_PORT}",
        f"--bind-address={addresses.control_plane if addresses.loopback_only else '0.0.0.0'}",  # noqa: S104
        f"--advertise-address={addresses.control_plane}",
        f"--secure-port={addresses.api_port}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={','.join(plugins)}",
        f"--audit-policy-file={spec.folder.audit_policy}",
        f"--audit-log-path={spec.folder.audit_log}",
        # A gigabyte before another file is begun: who reads it reads one. Of a cluster that is kept, one more stays.
        "--audit-log-maxsize=1000",
        "--audit-log-maxbackup=1",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-to-kubelet.key",
        # Node names are in nobody's DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
    ]
    if addresses.loopback_only:
        # A loopback address is no valid endpoint; without nodes nobody looks the Service up.
        command.append("--endpoint-reconciler-type=none")
    return command


def controller_manager(spec: ClusterSpec) -> list[str]:
    """The controllers: garbage collection, volumes, endpoints, the life of nodes and of ServiceAccount tokens."""
    pki = spec.folder.certificates
    return [
        spec.program("kube-controller-manager"),
        f"--kubeconfig={pki}/controller-manager.kubeconfig",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        *_pace(spec),
        *_node_monitor(spec),
        "--pvclaimbinder-sync-period=2s",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-accounts.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
    ]


def _pace(spec: ClusterSpec) -> list[str]:
    # At the default 20 requests a second it takes 5 s to fetch its forty controllers' tokens.
    return [] if spec.stock_controllers else ["--kube-api-qps=500", "--kube-api-burst=1000"]


def _node_monitor(spec: ClusterSpec) -> list[str]:
    if spec.nodes:
        return [f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s", "--node-monitor-period=1s"]
    return [f"--node-monitor-grace-period={FAKE_NODE_GRACE_SECONDS}s"]


def scheduler(spec: ClusterSpec) -> list[str]:
    """The scheduler, as released."""
    return [
        spec.program("kube-scheduler"),
        f"--kubeconfig={spec.folder.certificates}/scheduler.kubeconfig",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def dns(spec: ClusterSpec) -> list[str]:
    """CoreDNS, outside the cluster's pods; `write_dns_config` must have written its file."""
    return [spec.program("coredns"), "-conf", str(spec.folder.root / "Corefile")]


def write_dns_config(spec: ClusterSpec) -> None:
    """Write CoreDNS's file: the cluster's own names only, forgotten by clients after 5 seconds.

    There is no way from pods to names outside: pods reach the cluster and this machine, nothing else.
    """
    (spec.folder.root / "Corefile").write_text(f"""\
.:53 {{
    bind {spec.addresses.control_plane}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {spec.folder.kubeconfig}
        ttl 5
    }}
}}
""")
