"""The bills of materials that `make sbom` writes, and what a Python environment really holds.

A bill is made of uv.lock for every processor and Python at once: a component may have a condition, in the words of
Python's packaging (PEP 508), under which alone it is installed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from tests.images.dockerfile import ROOT

Held = set[tuple[str, str]]
"""Packages, each as its name and its version."""

LOOK = """
import importlib.metadata, json, os, platform, re, sys
print(json.dumps({
    "environment": {
        "implementation_name": sys.implementation.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "python_full_version": platform.python_version(),
        "sys_platform": sys.platform,
    },
    "packages": [
        (re.sub("[-_.]+", "-", found.name).lower(), found.version)
        for found in importlib.metadata.distributions(path=[p for p in sys.path if p.startswith(sys.prefix + os.sep)])
    ],
}))
"""
"""A program for the image's own Python: which packages its environment holds, and what their conditions ask for."""


def write_bills(folder: Path) -> dict[str, dict[str, Any]]:
    """Run `make sbom`; returns the bills of the operator and of the trainer."""
    command = ["make", "--no-print-directory", "sbom", f"SBOM={folder}"]
    # A make that runs the tests hands its own arguments on to this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return {part: json.loads((folder / f"oarlock-{part}.cdx.json").read_text()) for part in ("operator", "trainer")}


def packages(bill: dict[str, Any], environment: dict[str, str] | None = None) -> Held:
    """The packages of a bill, that of the image itself too; with an environment those alone that it asks for."""
    listed = [bill["metadata"]["component"], *bill["components"]]
    return {(each["name"], each["version"]) for each in listed if environment is None or _is_for(each, environment)}


def installed(printed: str) -> tuple[Held, dict[str, str]]:
    """What `LOOK` printed: the packages, and the environment for conditions."""
    found = json.loads(printed)
    return {(name, version) for name, version in found["packages"]}, found["environment"]


def _is_for(component: dict[str, Any], environment: dict[str, str]) -> bool:
    told = {each["name"]: each["value"] for each in component.get("properties", ())}
    marker = told.get("uv:package:marker")
    return marker is None or Marker(marker).evaluate(environment)
