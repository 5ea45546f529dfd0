"""The network interface that has an address: what NCCL and gloo are given in the node's network.

There they would guess: NCCL takes every interface but docker's and the loopback (a CNI's bridges too), gloo the address
that the node's host name stands for, which is often 127.0.1.1. The operator tells the pod's address; the interface that
has it is the one by which the other nodes reach this one. Its name may differ from node to node, so it is looked up here.
"""

from __future__ import annotations

import psutil


def interface_with(address: str) -> str | None:
    """Name of this network namespace's interface with `address`, IPv4 or IPv6; None where there is none, or no address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            # A further address may carry a label: eth0:1.
            return name.partition(":")[0]
    return None
