"""TrainingJobs from Python: what the command `oarlock` does, as an SDK.

    from oarlock import Client
    job = Client().job("flux")
    print(job.row.step, job.status.phase)
    job.wait(timeout=3600)

Names are imported when they are first used: `import oarlock` alone costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oarlock.client import Client
    from oarlock.errors import (
        ForbiddenError,
        JobFailedError,
        JobNotRunningError,
        NoClusterError,
        NotFoundError,
        NotNowError,
        OarlockError,
        RefusedError,
        WaitTimeoutError,
    )
    from oarlock.job import Job

__all__ = [
    "Client",
    "ForbiddenError",
    "Job",
    "JobFailedError",
    "JobNotRunningError",
    "NoClusterError",
    "NotFoundError",
    "NotNowError",
    "OarlockError",
    "RefusedError",
    "WaitTimeoutError",
]

_ELSEWHERE = {"Client": "oarlock.client", "Job": "oarlock.job"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"oarlock has no {name}")
    return getattr(import_module(_ELSEWHERE.get(name, "oarlock.errors")), name)
