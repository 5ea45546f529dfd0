"""Pretended GPUs with the real NVML interface: a libnvidia-ml.so.1 that says what a control file tells it to say.

Unmodified nvidia-ml-py works with it, where NVML_LIBRARY leads to it. A machine's GPUs are one folder:

    library = nvml.install(folder)  # loaded by whoever monitors
    gpus = nvml.Control(folder)
    gpus.set("gpus=8", "3:action=4")
    gpus.inject(gpu=1, xid=79)
    gpus.clear()
"""

from oarlock_local.nvml.build import LIBRARY, build, install, why_no_library
from oarlock_local.nvml.control import Control
from oarlock_local.nvml.fault import GpuFault

__all__ = ["LIBRARY", "Control", "GpuFault", "build", "install", "why_no_library"]
