"""The faults that can be done to a running cluster: their names, what they need, and what they do.

All of them are real: a stopped process, a link that is down, a machine without power. Only GPUs are pretended, but
speak through a real NVML. The supervisor carries faults out, because it alone is in the cluster's namespaces.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from oarlock_local.node import Node
from oarlock_local.nvml import GpuFault


class Target(Enum):
    """What a fault is done to."""

    NODE = "NODE"
    GPU = "NODE [--gpu I]"
    CONTAINER = "NAMESPACE/POD[/CONTAINER]"
    API_SERVER = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, or its mending."""

    target: Target
    help: str
    options: frozenset[str] = frozenset()
    """What may be said besides the target: keys of GpuFault."""


FAULTS = {
    "freeze-kubelet": Fault(Target.NODE, "stop the kubelet: the node goes NotReady, its containers go on"),
    "thaw-kubelet": Fault(Target.NODE, "let a frozen kubelet go on"),
    "cut": Fault(Target.NODE, "take the node's link down: the node works on, unheard"),
    "heal": Fault(Target.NODE, "take the node's link up again"),
    "kill": Fault(Target.NODE, "switch the node off"),
    "start": Fault(Target.NODE, "switch the node on"),
    "reboot": Fault(Target.NODE, "switch the node off and on; its disk is kept"),
    "gpu": Fault(Target.GPU, "do to a GPU of the node what the options say", frozenset(GpuFault.__annotations__)),
    "mend-gpu": Fault(Target.GPU, "make that GPU healthy again, or all of the node", frozenset({"gpu"})),
    "kill-container": Fault(Target.CONTAINER, "kill the first process of a container by SIGKILL"),
    "freeze-apiserver": Fault(Target.API_SERVER, "stop the API server: requests hang"),
    "thaw-apiserver": Fault(Target.API_SERVER, "let a frozen API server go on"),
    "restart-apiserver": Fault(Target.API_SERVER, "kill the API server and start it again: watches break"),
}

NODE_ACTIONS: dict[str, Callable[[Node], None]] = {
    "freeze-kubelet": lambda node: node.signal_kubelet(signal.SIGSTOP),
    "thaw-kubelet": lambda node: node.signal_kubelet(signal.SIGCONT),
    "cut": Node.cut,
    "heal": Node.heal,
    "kill": Node.kill,
    "start": Node.switch_on,
    "reboot": Node.reboot,
}
"""What the supervisor does to a node for each fault of Target.NODE."""

GPU_ACTIONS: dict[str, Callable[[Node, GpuFault], None]] = {
    "gpu": Node.hurt_gpu,
    "mend-gpu": Node.mend_gpus,
}
"""The same for each fault of Target.GPU."""
