"""The links of a cluster, made with iproute2's `ip`.

A cluster has a bridge in its own network namespace; nodes hang on it by veth pairs, and one more pair leads to this
machine. A pair goes with either end, and an end goes with its namespace: nothing of this outlives the cluster.
"""

import ipaddress
import json
import subprocess
import time
from pathlib import Path

from oarlock_local.addresses import KUBERNETES_SERVICE, Addresses
from oarlock_local.errors import MachineError

UPLINK = "uplink"


def ip(arguments: str, *, missing_ok: bool = False) -> str:
    """Run `ip` with those arguments; raises MachineError with its words where it fails."""
    result = subprocess.run(["ip", *arguments.split()], check=False, capture_output=True, text=True)
    if result.returncode != 0 and not (missing_ok and "Cannot find device" in result.stderr):
        raise MachineError(f"ip {arguments}: {result.stderr.strip()} (exit {result.returncode})")
    return result.stdout


def make_bridge(addresses: Addresses) -> None:
    """In the cluster's namespace: the bridge, with the gateway's and the API server's Service address."""
    for arguments in (
        "link set lo up",
        f"link add cluster address {addresses.hardware(0)} type bridge",
        f"addr add {addresses.control_plane}/24 dev cluster",
        f"addr add {KUBERNETES_SERVICE}/32 dev cluster",
        "link set cluster up",
    ):
        ip(arguments)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Nodes know the direct way to each other; telling them again in redirects would only make noise.
    for scope in ("all", "cluster"):
        Path(f"/proc/sys/net/ipv4/conf/{scope}/send_redirects").write_text("0")


def route_to_pods(addresses: Addresses, nodes: int) -> None:
    """In the cluster's namespace: the ways to the pods of each node. Needs the bridge."""
    for number in range(1, nodes + 1):
        ip(f"route add {addresses.pods(number)} via {addresses.node(number)}")


def plug_uplink() -> None:
    """In the cluster's namespace: connect the link to this machine to the bridge."""
    ip(f"link set {UPLINK} master cluster up")


def make_uplink(addresses: Addresses, cluster_pid: int) -> None:
    """On this machine: a link into the network namespace of that process, and the route to all nodes and pods."""
    ip(f"link del {addresses.link}", missing_ok=True)
    ip(f"link add {addresses.link} type veth peer name {UPLINK} netns {cluster_pid}")
    ip(f"addr add {addresses.host}/24 dev {addresses.link}")
    ip(f"link set {addresses.link} up")
    ip(f"route add {addresses.all} via {addresses.control_plane} dev {addresses.link}")


def remove_uplink(addresses: Addresses) -> None:
    """On this machine: take the link away at once, instead of when the kernel gets round to it."""
    deadline = time.monotonic() + 5
    while Path("/sys/class/net", addresses.link).exists() and time.monotonic() < deadline:
        ip(f"link del {addresses.link}", missing_ok=True)


def is_routed(addresses: Addresses) -> bool:
    """Whether this machine uses a part of that range for something else."""
    for route in json.loads(ip("-json -4 route show table all")):
        if route["dst"] == "default" or route.get("dev") == addresses.link:
            continue
        network = ipaddress.ip_network(route["dst"], strict=False)
        # Wider routes (a tunnel for all of 10.0.0.0/8) give way to our more specific one.
        if network.overlaps(addresses.all) and network.prefixlen >= addresses.all.prefixlen:
            return True
    return False
