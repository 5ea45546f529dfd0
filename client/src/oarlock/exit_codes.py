"""The exit codes of the command line: one table for the code, `oarlock exit-codes` and docs/cli.md."""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0, "Done. Of `wait`: the job has succeeded."
    FAILED = 1, "The job has failed, or what was asked of it has."
    TIMEOUT = 2, "`--timeout` was over first."
    NOT_RUNNING = 3, "The job is suspended or deleted, so that waiting has no end."
    NOT_FOUND = 4, "There is no such job, node, namespace or file."
    FORBIDDEN = 5, "The cluster does not know the caller, or does not allow it."
    NO_CLUSTER = 6, "No cluster answers, or the kubeconfig leads to none."
    REFUSED = 7, "The API server refused what was sent, such as a manifest that breaks a rule."
    NOT_NOW = 8, "The job, or this installation, cannot do that now; the message says what it needs."
    USAGE = 64, "The command line is wrong; nothing was done."
    INTERRUPTED = 130, "Ctrl-C."
    PIPE_CLOSED = 141, "Whoever read the output has gone, as `head` does."

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A code with its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code
