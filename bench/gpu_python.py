"""The Python that slices of `make gpu-day` run by: what it can import, its versions, and wheels of what it lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_slices import TESTS

ROOT = Path(__file__).resolve().parents[1]
MAX_WHEELS = 64 << 20
"""Bytes of a folder of wheels: what travels to a machine that is lent."""
GPUS = "GPUs"
"""Among the versions: what the driver has, such as `1 x NVIDIA H200`; absent where it does not tell."""
TOLD = (*TESTS, "triton", "bitsandbytes", "cv2")
DISTRIBUTIONS = {
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "PIL": "pillow",
}
"""Of imports that have another name than what is installed."""
_SOURCES = ("api", "client", "trainer", "importer", "local")


def locked() -> dict[str, dict[str, Any]]:
    """What uv.lock says of each package, by its name."""
    return {one["name"]: one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}


def installed(environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of what this Python can import, by the import's name, its own, and its GPUs."""
    program = f"""
import importlib.metadata, importlib.util, json, platform
names, found = {DISTRIBUTIONS!r}, {{"Python": platform.python_version()}}
for name in {TOLD!r}:
    if importlib.util.find_spec(name):
        try:
            found[name] = importlib.metadata.version(names.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
try:
    import pynvml
    pynvml.nvmlInit()
    devices = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    found[{GPUS!r}] = f"{{len(devices)}} x {{pynvml.nvmlDeviceGetName(devices[0])}}"
except Exception:  # no package, no driver, no GPU: the first slice tells which
    pass
print(json.dumps(found))
"""
    asked = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        sys.exit(
            f"{sys.executable} can't tell what it has, with PYTHONPATH={environment['PYTHONPATH']}:\n{asked.stderr}"
        )
    found: dict[str, str] = json.loads(asked.stdout.splitlines()[-1])
    return found


def surroundings(wheels: Path | None, site: Path) -> dict[str, str]:
    """The environment of slices: the product's sources, and the packages of the wheels before what is installed."""
    paths = [str(ROOT / name / "src") for name in _SOURCES]
    if wheels:
        paths.append(str(unpacked(wheels, site)))
    # Slices run in the checkout, where a path from here would name another folder.
    paths += [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def unpacked(wheels: Path, site: Path) -> Path:
    """The content of all wheels of a folder, in one folder, and of no others.

    Ends this program where they are too many or too large, where one is damaged or for another Python.
    """
    files = sorted(wheels.glob("*.whl"))
    size = sum(file.stat().st_size for file in files)
    if not files or size > MAX_WHEELS:
        sys.exit(
            f"{wheels} has {len(files)} wheels of {size >> 20} MiB: at least one, and at most {MAX_WHEELS >> 20} MiB"
        )
    if others := [file.name for file in files if not fits(file.name, sys.version_info[:2])]:
        version = "{}.{}".format(*sys.version_info)
        sys.exit(
            f"{wheels} has wheels for another Python than {version}: {', '.join(others)} (bench/gpu_wheels.py --python)"
        )
    shutil.rmtree(site, ignore_errors=True)
    for file in files:
        try:
            with zipfile.ZipFile(file) as archive:
                archive.extractall(site)
        except (zipfile.BadZipFile, EOFError, ValueError) as error:
            sys.exit(f"{file} is damaged ({error}): fetch it again")
    return site


def fits(name: str, version: tuple[int, int]) -> bool:
    """Whether a wheel, by the tags of its name, is for a Python of this version (PEP 425)."""
    pythons, abis, _ = name.removesuffix(".whl").split("-")[-3:]
    major, minor = version
    for python in pythons.split("."):
        if python in (f"py{major}", f"cp{major}{minor}"):
            return True
        given = python.removeprefix(f"cp{major}")
        if "abi3" in abis.split(".") and given.isdecimal() and int(given) <= minor:
            return True
    return False
