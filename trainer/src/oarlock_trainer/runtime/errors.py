"""Every way in which training ends before its last step, and the exit code of the contract that each one means.

    TrainingEnd
    |-- ConfigurationError   85   the job or its data must change; the message says how
    |   `-- NotThereError         a path of the job leads to nothing here
    |-- StorageError         84   the output or a store did not do what storage does
    |-- FencedError          88   somebody newer owns the output
    |-- PeerLostError        82   another rank is gone: this one is a victim
    |-- UnfitError           87   the node that this rank runs on can't take part
    `-- LeftOnRequest        86   asked to leave, and saved before

Anything else is an application failure (1).
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_trainer.runtime import permission_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class TrainingEnd(Exception):  # noqa: N818 - one of them is no error
    """Training ends here, with `code`."""

    code: ClassVar[ExitCode]

    @property
    def outside_of_pods(self) -> str:
        """Its words for somebody at a machine that is no pod's."""
        return str(self)


class ConfigurationError(TrainingEnd):
    """The job cannot run as it is written, or its data are not usable. The message says what to change."""

    code = ExitCode.CONFIGURATION


class NotThereError(ConfigurationError):
    """A folder or file that the job names by its path is not there: on another machine it may be."""

    def __init__(self, words: str, outside_of_pods: str) -> None:
        # Both are arguments of the exception, so that it reaches other ranks whole.
        super().__init__(words, outside_of_pods)

    @classmethod
    def of(cls, missing: str, remedy: str) -> NotThereError:
        """What is missing, and what mends that in a pod: elsewhere it is first of all another path."""
        elsewhere = "with -f, --path POD=HERE says where it lies on this machine"
        return cls(f"{missing}: {remedy}", f"{missing}: {elsewhere}; in pods, {remedy}")

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def outside_of_pods(self) -> str:
        """The remedy of this machine comes first."""
        return str(self.args[1])


class StorageError(TrainingEnd):
    """Reading or writing failed below us: a full disk, a lost mount, a torn file that was valid before."""

    code = ExitCode.STORAGE


class FencedError(TrainingEnd):
    """The output belongs to a newer attempt or to another job."""

    code = ExitCode.FENCED


class PeerLostError(TrainingEnd):
    """A collective failed because another rank is gone or silent."""

    code = ExitCode.PEER_LOST


class UnfitError(TrainingEnd):
    """A check before the start speaks against this node, not against the others or the job."""

    code = ExitCode.PREFLIGHT


class LeftOnRequest(TrainingEnd):
    """All ranks saved together and leave, as they were asked to."""

    code = ExitCode.LEFT_ON_REQUEST


def all_of(found: Sequence[ConfigurationError]) -> ConfigurationError:
    """One error with the words of all, each said once."""
    words = "\n".join(dict.fromkeys(map(str, found)))
    if not any(isinstance(one, NotThereError) for one in found):
        return ConfigurationError(words)
    return NotThereError(words, "\n".join(dict.fromkeys(one.outside_of_pods for one in found)))


_PEER_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out",
    "socket timeout",
    "remote process exited",
    "nccl communicator was aborted",
    "unhandled system error",
    "failed to recv, got 0 bytes",
)
"""What gloo, NCCL and the rendezvous store say when the other side is gone."""


def lost_a_peer(error: BaseException) -> bool:
    """Tell whether `error` comes from a collective that lost its other side.

    torch raises DistBackendError, DistStoreError and DistNetworkError (all RuntimeError), and gloo a bare RuntimeError
    that names its source file: the class alone does not tell, so the words must.
    """
    if not isinstance(error, RuntimeError | ConnectionError):
        return False
    words = str(error).lower()
    distributed = type(error).__name__.startswith("Dist") or "gloo" in words or "nccl" in words
    return isinstance(error, ConnectionError) or (distributed and any(phrase in words for phrase in _PEER_LOST))


FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a storage says that has no room."""
_STORAGE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.ENODEV, errno.ENOTCONN})
"""What a full, failing or lost file system says, wherever it is met."""


def lost_storage(error: BaseException) -> bool:
    """Tell whether an error that nobody expected comes from the storage."""
    return isinstance(error, OSError) and error.errno in _STORAGE


_OF_THE_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL})
"""What a name that leads to no file says, and a damaged header that sends its reader before the file's beginning."""


def failed_reading(error: BaseException) -> bool:
    """Tell whether the storage failed while a file was read. If not, the file itself is not there, or damaged.

    What Pillow and Arrow say of a file's content has no errno.
    """
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_THE_FILE


@contextmanager
def storage(doing: str) -> Iterator[None]:
    """Turn what the storage does to us into StorageError; `doing` says what we were about."""
    try:
        yield
    except PermissionError as error:
        raise StorageError(f"{doing}: {permission_error.explain(error, writing=True)}") from error
    except OSError as error:
        raise StorageError(f"{doing}: {error}") from error
    except RuntimeError as error:
        # torch.save reports a full disk or a lost mount through its archive writer, without an errno.
        if "PytorchStreamWriter" in str(error) or "inline_container" in str(error):
            raise StorageError(f"{doing}: {error}") from error
        raise


@contextmanager
def readable(field: str, folder: Path) -> Iterator[None]:
    """Turn what this pod may not read into ConfigurationError: no restart changes it. `field` of the job names `folder`."""
    try:
        yield
    except PermissionError as error:
        raise ConfigurationError(f"{field}: {permission_error.explain(error, below=folder)}") from error
