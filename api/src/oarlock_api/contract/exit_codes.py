"""The agent's exit codes: one class of ending each. Any other code is an application failure."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """Why the agent left. 80-88 stay clear of the shell's (1, 2, 126-128) and of 128 + signal."""

    DONE = 0
    REPLACE_NODE = 80
    RESTART_PROCESS = 81
    PEER_LOST = 82
    HANG = 83
    STORAGE = 84
    CONFIGURATION = 85
    LEFT_ON_REQUEST = 86
    PREFLIGHT = 87
    FENCED = 88


class FailureClass(StrEnum):
    """What kind of thing went wrong, in the words of recovery.rules. No exit code tells of a lost node."""

    GPU = "GPU"
    PEER_LOST = "PeerLost"
    HANG = "Hang"
    STORAGE = "Storage"
    CONFIGURATION = "Configuration"
    PREFLIGHT = "Preflight"
    APPLICATION = "Application"
    FENCED = "Fenced"
    REQUESTED = "Requested"
    NODE_LOST = "NodeLost"


_CLASS_OF = {
    ExitCode.REPLACE_NODE: FailureClass.GPU,
    ExitCode.RESTART_PROCESS: FailureClass.GPU,
    ExitCode.PEER_LOST: FailureClass.PEER_LOST,
    ExitCode.HANG: FailureClass.HANG,
    ExitCode.STORAGE: FailureClass.STORAGE,
    ExitCode.CONFIGURATION: FailureClass.CONFIGURATION,
    ExitCode.LEFT_ON_REQUEST: FailureClass.REQUESTED,
    ExitCode.PREFLIGHT: FailureClass.PREFLIGHT,
    ExitCode.FENCED: FailureClass.FENCED,
}


def failure_class(code: int) -> FailureClass:
    """Class of a non-zero exit code; what the contract does not name is the application's."""
    return next((kind for known, kind in _CLASS_OF.items() if known == code), FailureClass.APPLICATION)
