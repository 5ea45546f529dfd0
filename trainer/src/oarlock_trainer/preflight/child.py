"""Runs checks one after the other and tells each finding in a line of its own, in a process that may hang or crash.

    python -m oarlock_trainer.preflight.child '[{"check": "storage", "directory": "/output/flux"}]' 1

An order names the check's module in this folder; the rest are the arguments of its `find`. The number is the agent's pid: the
process dies with it, however long a check hangs.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from oarlock_trainer.runtime.parent import die_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.preflight.finding import Finding

_FOUND_ON = 1
"""The descriptor that the agent reads: standard output."""


def perform(order: Mapping[str, Any]) -> Finding:
    """Do one check and say how long it took."""
    arguments = dict(order)
    check = importlib.import_module(f"oarlock_trainer.preflight.{arguments.pop('check')}")
    began = time.monotonic()
    finding: Finding = check.find(**arguments)
    return dataclasses.replace(finding, milliseconds=round((time.monotonic() - began) * 1000))


def main() -> None:
    """Do what the first argument orders, for the parent that the second one names."""
    die_with(int(sys.argv[2]))
    for order in json.loads(sys.argv[1]):
        os.write(_FOUND_ON, perform(order).to_line())


if __name__ == "__main__":
    main()
