"""What the words of a program's end tell more precisely than its exit code.

Operator and client name an end by this one table, so that it has one name in the status, in Events, in `oarlock why` and on
the page. The words are those of the agent, of the operator, of PyTorch and of CUDA.
"""

from __future__ import annotations

import re

PROGRAM_ENDINGS = (
    (r"killed by SIGKILL.*because the time that it had to save was over", "KilledAfterGrace"),
    (r"out of memory \(the kernel killed|OOMKilled|, out of memory: raise", "OOMKilled"),
    (
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        "GPUOutOfMemory",
    ),
    (r"loss.*not finite|not finite.*loss|\bloss[^\n]{0,40}\bnan\b", "NonFiniteLoss"),
    (r"was killed by SIG|killed by SIGKILL", "ProcessKilled"),
)
"""Patterns, and the reason that each stands for; the first that is found counts."""


def program_ending(text: str) -> str:
    """The reason that `text` tells, empty where it tells no more than that the program failed."""
    return next((word for pattern, word in PROGRAM_ENDINGS if re.search(pattern, text, re.IGNORECASE)), "")
