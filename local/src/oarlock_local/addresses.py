"""The addresses of one cluster, all derived from its slot.

A cluster with nodes owns 10.(128 + slot).0.0/16: the first /24 is its bridge, with the control plane, the nodes and
this machine on it; the /24 number N is the pods of node N. A control plane alone listens on 127.77.slot.1.
Service addresses exist inside a cluster only, so every cluster has the same ones.
"""

import ipaddress
from dataclasses import dataclass

SERVICES = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DOMAIN = "cluster.local"
MOST_NODES = 100


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything of one cluster is."""

    slot: int
    loopback_only: bool = False

    @property
    def _prefix(self) -> str:
        return f"10.{128 + self.slot}"

    @property
    def all(self) -> ipaddress.IPv4Network:
        """The whole range of the cluster: this machine routes it into the cluster."""
        return ipaddress.IPv4Network(f"{self._prefix}.0.0/16")

    @property
    def control_plane(self) -> str:
        """The API server, etcd and DNS; for the nodes also the gateway."""
        return f"127.77.{self.slot}.1" if self.loopback_only else f"{self._prefix}.0.1"

    @property
    def api_port(self) -> int:
        """443 where pods must reach the API server under its Service's address; unprivileged on the loopback."""
        return 6443 if self.loopback_only else 443

    @property
    def api_url(self) -> str:
        """The API server, from this machine and from the nodes."""
        return f"https://{self.control_plane}:{self.api_port}"

    @property
    def host(self) -> str:
        """This machine, as nodes and pods see it."""
        return f"{self._prefix}.0.254"

    @property
    def link(self) -> str:
        """The network link on this machine that leads into the cluster."""
        return f"oarlock{self.slot}"

    def node(self, number: int) -> str:
        """Node 1, 2, ... on the bridge."""
        return f"{self._prefix}.0.{10 + number}"

    def hardware(self, number: int) -> str:
        """The link-layer address of node 1, 2, ..., or 0 for the bridge.

        Given, not left to chance: one that changed at a reboot would send its neighbours' packets astray until
        they ask for it again, many seconds later. A bridge even takes another one whenever a node comes or goes.
        """
        return f"02:6f:61:{self.slot:02x}:00:{number:02x}"

    def pods(self, number: int) -> str:
        """The range of the pods of node 1, 2, ..."""
        return f"{self._prefix}.{number}.0/24"
