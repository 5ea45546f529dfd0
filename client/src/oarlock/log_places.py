"""Where a job's output keeps what its pods printed, told to people. Pure: nothing is looked for there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oarlock.parts import part
from oarlock_api.contract.history import HISTORY, LOGS, attempt_folder, log_name
from oarlock_api.contract.wire import text


def output_directory(job: Mapping[str, Any]) -> str:
    """The name of the job's directory below its output."""
    metadata = part(job, "metadata")
    return text(part(part(job, "spec"), "output").get("directory"), 253) or text(metadata.get("name"), 253)


def where_kept(job: Mapping[str, Any], *, attempt: int, pod: int | None = None) -> str:
    """A sentence: the file of that pod, or the folder of them all, and the command that reads it."""
    output = part(part(job, "spec"), "output")
    if re.fullmatch(r"0+[A-Za-z]*", str(part(output, "history").get("logSize"))):
        return "The job keeps no logs in its output, for output.history.logSize is 0."
    directory = output_directory(job)
    path = f"{directory}/{HISTORY}/{LOGS}/{attempt_folder(attempt, text(part(job, 'metadata').get('uid'), 64))}"
    path += f"/{log_name(pod)}" if pod is not None else ""
    claim = text(part(output, "persistentVolumeClaim").get("claimName"), 253)
    nfs = part(output, "nfs")
    where = f" (PersistentVolumeClaim {claim})" if claim else ""
    where = f" (NFS {text(nfs.get('server'), 253)}:{text(nfs.get('path'), 253)})" if nfs else where
    command = f"oarlock logs --path <output>/{directory} --attempt {attempt}"
    command += f" --pod {pod}" if pod is not None else ""
    who = "it" if pod is not None else "they"
    return f"What {who} printed is kept in the job's output{where}, in `{path}`: where that is mounted, `{command}` reads it."
