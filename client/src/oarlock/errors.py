"""The errors of the SDK. Each says what was wrong, where, and what to do; `code` is the command line's exit code for it.

OarlockError
|-- NoClusterError      no cluster answers
|-- ForbiddenError      the caller may not
|   `-- UnknownCallerError  nobody knows him
|-- NotFoundError       it is not there
|-- RefusedError        the API server took exception to what was sent
|-- NotNowError         it is not possible at this moment, or with what is installed
|-- JobFailedError      the job has ended badly
|-- JobNotRunningError  the job is suspended or deleted
`-- WaitTimeoutError    the time was over first
"""

from oarlock.exit_codes import ExitCode


class OarlockError(Exception):
    """What was wrong, where, and what to do."""

    code = ExitCode.FAILED


class NoClusterError(OarlockError):
    """No cluster answers, or the kubeconfig leads to none."""

    code = ExitCode.NO_CLUSTER


class ForbiddenError(OarlockError):
    """The cluster does not know the caller, or does not allow it."""

    code = ExitCode.FORBIDDEN


class UnknownCallerError(ForbiddenError):
    """The cluster does not know the caller, or not any more."""


class NotFoundError(OarlockError):
    """There is no such thing."""

    code = ExitCode.NOT_FOUND


class RefusedError(OarlockError):
    """The API server refused what was sent. `status` is HTTP's."""

    code = ExitCode.REFUSED

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotNowError(OarlockError):
    """The job, or this installation, cannot do that now."""

    code = ExitCode.NOT_NOW


class JobFailedError(OarlockError):
    """The job has failed."""


class JobNotRunningError(OarlockError):
    """The job is suspended or deleted."""

    code = ExitCode.NOT_RUNNING


class WaitTimeoutError(OarlockError):
    """The time was over first."""

    code = ExitCode.TIMEOUT


def last_words(error: BaseException) -> str:
    """What an error of another library says, on one line; of several reasons the last one."""
    reason = getattr(error, "reason", None)
    return " ".join(str(reason or error).split())[:300] or type(error).__name__
