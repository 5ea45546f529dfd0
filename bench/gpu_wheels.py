"""Fill a folder with wheels of what a machine with a GPU and no network lacks, for `make gpu-day WHEELS=FOLDER`.

    python3 -m pip list --format=freeze >there.txt           on the machine, or what is known of it
    .venv/bin/python bench/gpu_wheels.py FOLDER --python 3.12 --there there.txt

Versions are those of uv.lock. What the machine has is left out, in whatever version; torch and its libraries always are. Of
bitsandbytes only the library for one CUDA is taken: all of them would fill the 64 MiB.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_python import MAX_WHEELS, locked
from packaging.markers import Marker

_WANTED = ("oarlock-trainer", "oarlock-import", "oarlock-local")
_TESTS = ("pytest", "pytest-timeout", "hypothesis", "lycoris-lora", "scikit-image")
_NEVER = re.compile(r"^(torch|triton|nvidia-(?!ml-py).*|cuda-.*|oarlock.*)$")
_GLIBC = (17, 24, 27, 28, 31, 34)
"""Of manylinux: pip takes each one by its name."""


def main() -> None:
    """Download, build what has no wheel, and tell the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="{}.{}".format(*sys.version_info), help="the machine's, such as 3.12")
    parser.add_argument("--there", type=Path, help="a file with lines NAME==VERSION of what the machine has")
    parser.add_argument("--cuda", default="130", help="of the machine's torch: 130 for 13.0")
    options = parser.parse_args()
    packages = locked()
    lines = options.there.read_text().splitlines() if options.there else []
    there = {_normalized(line.partition("==")[0]) for line in lines}
    names = [name for name in sorted(needed(packages, options.python)) if not _NEVER.match(name) and name not in there]
    options.folder.mkdir(parents=True, exist_ok=True)
    for old in options.folder.glob("*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as home:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [f"{home}/bin/pip", "--quiet", "--disable-pip-version-check"]
        built = [name for name in names if not packages[name].get("wheels")]
        fetch(pip, [f"{name}=={packages[name]['version']}" for name in names if name not in built], options)
        for name in built:
            command = [*pip, "wheel", "--no-deps", "--wheel-dir", str(options.folder)]
            environment = {**os.environ, "DS_BUILD_OPS": "0"}
            subprocess.run([*command, f"{name}=={packages[name]['version']}"], check=True, env=environment)
    for wheel in options.folder.glob("bitsandbytes-*.whl"):
        _keep_one_cuda(wheel, options.cuda)
    sizes = {file.name: file.stat().st_size for file in sorted(options.folder.glob("*.whl"))}
    for name, size in sorted(sizes.items(), key=lambda one: -one[1]):
        print(f"{size / 2**20:7.1f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:7.1f} MiB in all")
    if total > MAX_WHEELS:
        sys.exit(f"more than the {MAX_WHEELS >> 20} MiB that make gpu-day takes: name in --there what is not needed")


def needed(packages: Mapping[str, Mapping[str, Any]], python: str) -> Iterator[str]:
    """What the trainer and its tests import, with what that needs in turn, by uv.lock, on Linux with this Python."""
    machine = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}
    machine |= {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    left, seen = [*_WANTED, *_TESTS], set[str]()
    while left:
        name = left.pop()
        if name in seen or name not in packages:
            continue
        seen.add(name)
        yield name
        left += [
            one["name"]
            for one in packages[name].get("dependencies", ())
            if not _NEVER.match(one["name"]) and ("marker" not in one or Marker(one["marker"]).evaluate(machine))
        ]


def fetch(pip: list[str], requirements: list[str], options: argparse.Namespace) -> None:
    """Wheels for the machine's Python, on x86-64 Linux."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in _GLIBC] + ["manylinux2014_x86_64"]
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", options.python, "--dest", str(options.folder)]
    command += [argument for platform in platforms for argument in ("--platform", platform)]
    subprocess.run([*command, *requirements], check=True)


def _keep_one_cuda(wheel: Path, cuda: str) -> None:
    """Write the wheel anew without libraries for other devices."""
    slim = wheel.with_suffix(".slim")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            other = re.search(r"libbitsandbytes_(\w+)\.so$", entry.filename)
            if not other or other[1] in ("cpu", f"cuda{cuda}"):
                new.writestr(entry, old.read(entry), zipfile.ZIP_DEFLATED)
    slim.replace(wheel)


def _normalized(name: str) -> str:
    """As PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


if __name__ == "__main__":
    main()
