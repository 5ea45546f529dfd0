"""Runs programs that ask the pretended NVML through nvidia-ml-py, each in a process of its own as a monitor is."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from oarlock_local import patience

PREAMBLE = """
import ctypes, json, sys
from pathlib import Path
import pynvml
from pynvml import *
from oarlock_local.nvml import Control
ctypes.CDLL(sys.argv[1])  # nvidia-ml-py then gets this one, by its soname
control = Control(Path(sys.argv[1]).parent)
nvmlInit()
def gpu(index):
    return nvmlDeviceGetHandleByIndex(index)
def code(call, *arguments):
    try:
        call(*arguments)
    except NVMLError as error:
        return error.value
    return 0
def field(index, number, scope=0):
    [value] = nvmlDeviceGetFieldValues(gpu(index), [(number, scope)])
    if value.nvmlReturn:
        return f"error {value.nvmlReturn}"
    members = {NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal", NVML_VALUE_TYPE_SIGNED_INT: "siVal",
               NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal"}
    return getattr(value.value, members[value.valueType])
def fabric(kind):
    info = kind()
    nvmlDeviceGetGpuFabricInfoV(gpu(1), byref(info))
    return info
def registered(types=nvmlEventTypeXidCriticalError, index=1):
    events = nvmlEventSetCreate()
    nvmlDeviceRegisterEvents(gpu(index), types, events)
    return events
def wait(events, timeout=0):
    try:
        got = nvmlEventSetWait_v2(events, timeout)
    except NVMLError as error:
        return error.value
    return [nvmlDeviceGetIndex(got.device), got.eventType, got.eventData]
"""


def ask(library: Path, program: str, words: str | None = None) -> Any:
    """The value that the program assigned to `answer`. `words`, where given, are in FAKE_NVML."""
    environ = {key: value for key, value in os.environ.items() if key != "FAKE_NVML"}
    done = subprocess.run(
        [sys.executable, "-c", f"{PREAMBLE}\n{textwrap.dedent(program)}\nprint(json.dumps(answer))", str(library)],
        env=environ if words is None else {**environ, "FAKE_NVML": words},
        check=False,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
