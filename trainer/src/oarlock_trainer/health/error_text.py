"""What a program's own error text says of GPUs: the last resort of attribution, where NVML has said nothing.

A text never takes a node from anybody: programs print what they like, and most CUDA errors are the program's own. It
tells a GPU's fault from a lost peer and from an error of the application, and whose budget a restart is charged to.
"""

from __future__ import annotations

import re
from enum import StrEnum


class ErrorSource(StrEnum):
    """What a text speaks of."""

    GPU = "gpu"
    """A CUDA context is lost: the processes must start anew."""
    PEER = "peer"
    """Somebody else is gone."""
    APPLICATION = "application"
    """Named here because it looks like one of the others: memory, a mismatch of collectives."""


_COLLECTIVES = "(NCCL|gloo|c10d|TCPStore|Dist(Backend|Network|Store)Error)"
"""Whose connection it is, earlier in the line. The last are what torch raises for its own ones."""

TABLE: tuple[tuple[ErrorSource, str], ...] = (
    # What looks like a GPU's fault and is the program's.
    (ErrorSource.APPLICATION, r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"),
    (
        ErrorSource.APPLICATION,
        r"collective mismatch|mismatch(ed)? (in )?(between )?collective|ncclInvalidArgument|ncclInvalidUsage",
    ),
    (ErrorSource.APPLICATION, r"device-side assert triggered"),
    # What only a GPU says: cudaError 214, 220, 719, 700, 716, 46, 100, 999, 802, 721 and their texts.
    (ErrorSource.GPU, r"uncorrectable (ECC|NVLink) error"),
    (ErrorSource.GPU, r"unspecified launch failure|illegal memory access|misaligned address|illegal instruction"),
    (ErrorSource.GPU, r"hardware (stack )?(error|exception)|contained (memory )?error"),
    (ErrorSource.GPU, r"busy or unavailable|no CUDA-capable device|system not yet initialized"),
    (ErrorSource.GPU, r"CUDA error: unknown error|cudaErrorUnknown"),
    (ErrorSource.GPU, r"CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)|CUBLAS_STATUS_EXECUTION_FAILED"),
    (ErrorSource.GPU, r"ncclUnhandledCudaError"),
    # What a victim says. A store of pictures or a tracker may reset a connection too: the line must speak of collectives.
    (ErrorSource.PEER, rf"{_COLLECTIVES}.*(Connection (reset|closed) by (remote )?peer|socket.{{0,20}}closed)"),
    (ErrorSource.PEER, r"ncclRemoteError|remote process exited"),
    (ErrorSource.PEER, r"ncclSystemError|NCCL communicator was aborted|Watchdog caught collective operation timeout"),
)
_COMPILED = tuple((told, re.compile(pattern, re.IGNORECASE)) for told, pattern in TABLE)


def find(text: str) -> tuple[ErrorSource, str] | None:
    """(what a rank's own last words speak of, the line that says so), by the table's order; None where no row fits.

    The order is the rule: a program that ran out of memory goes on to lose its peers, and a broken GPU makes peers too.
    """
    lines = text.splitlines()
    for told, pattern in _COMPILED:
        for line in reversed(lines):
            if pattern.search(line):
                return told, _quoted(line)
    return None


def find_last(output: str) -> tuple[ErrorSource, str] | None:
    """The same of an output in which much else stands: the last line that fits decides, for earlier ones were survived.

    Whoever lost a peer says so last of all: that counts only where nothing else fits.
    """
    lost: tuple[ErrorSource, str] | None = None
    for line in reversed(output.splitlines()):
        told = next((told for told, pattern in _COMPILED if pattern.search(line)), None)
        if told in (ErrorSource.GPU, ErrorSource.APPLICATION):
            return told, _quoted(line)
        if told and lost is None:
            lost = told, _quoted(line)
    return lost


def _quoted(line: str) -> str:
    return line.strip()[:300]
