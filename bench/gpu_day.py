"""All that a GPU can tell, in slices of at most eight minutes, what is worth most first: `make gpu-day`.

    make gpu-day                                  in the project's own environment
    make gpu-day PYTHON=python3 WHEELS=wheels     with a Python and a torch that are there already; no `make setup`
    make gpu-day MINUTES=9                        no longer than this; the next call goes on where this one ended

PYTHON's versions are told beside those of uv.lock. What it lacks is taken from the wheels of a folder (bench/gpu_wheels.py
fills one, for a machine without a network), and a slice that still lacks something is skipped with its name. Each slice
has a bound, at which it is ended; what it had measured by then counts, and the next call goes on with it, after those that
never had a turn. Everything lies in bench/results/gpu/: the page is gpu-day.md, written anew after each slice.

    python bench/gpu_day.py --again block         this slice alone, anew; --only NAME ...: of what is left; --page: the page

Needs nothing but Python's standard library here: slices are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import gpu_page
from gpu_slices import SLICES, TESTS, Slice

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "bench" / "results" / "gpu"
_LOCK = ROOT / "uv.lock"
MAX_WHEELS = 64 << 20
"""Bytes of a folder of wheels: what travels to a machine that is lent."""
_SOURCES = ("api", "client", "trainer", "importer", "local")
_TOLD = (*TESTS, "triton", "peft", "bitsandbytes", "numpy", "safetensors", "yaml", "cv2", "pyarrow")
_DISTRIBUTIONS = {
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
}
_SECONDS_TO_END = 10.0
_KEPT_WORDS = 300
"""Characters of a slice's last words."""


class State(StrEnum):
    """How a slice stands."""

    DONE = "done"
    FAILED = "failed"
    GOES_ON = "goes on at the next call"
    SKIPPED = "skipped"
    """It lacks a package, which may have come by the next call."""


_NAMES = [each.name for each in SLICES]


def main(arguments: Sequence[str]) -> int:
    """Do the slices that are left; 1 where one failed."""
    options = _options(arguments)
    day = Day(FOLDER)
    if not options.page:
        end = time.monotonic() + options.minutes * 60
        day.forget([each for each in SLICES if each.name in options.again])
        environment = surroundings(options.wheels, FOLDER / "site")
        versions = installed(environment)
        day.note_versions(versions)
        for each in day.left([each for each in SLICES if each.name in (options.only or options.again or _NAMES)]):
            seconds = min(each.minutes * 60, end - time.monotonic())
            if seconds <= 0:
                print(f"== the time is over: {each.name} and what follows are left to the next call")
                break
            day.do(each, versions, environment, seconds)
            day.write_page()
    print(day.write_page())
    return 1 if any(one["state"] == State.FAILED for one in day.slices.values()) else 0


class Day:
    """How each slice ended, in a folder with what they found. Its files are whole at any moment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._path = folder, folder / "gpu-day.json"
        kept = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.slices: dict[str, dict[str, Any]] = kept.get("slices", {})
        self.versions: dict[str, list[str]] = kept.get("versions", {})

    def forget(self, slices: Iterable[Slice]) -> None:
        """These are to be done anew: what they found goes, and of a file that several share what is theirs."""
        for each in slices:
            self.slices.pop(each.name, None)
            path = self._folder / each.result
            found = json.loads(path.read_text()) if path.exists() else {}
            for name in each.program:
                found.get("results", {}).pop(name, None)
            shared = each.program[1:] and "results" in found
            if shared:
                _replace(path, json.dumps(found, indent=1) + "\n")
            else:
                path.unlink(missing_ok=True)
        self._write()

    def note_versions(self, versions: Mapping[str, str]) -> None:
        """What is installed, beside what uv.lock has; told where they differ."""
        locked = {one["name"]: one.get("version", "") for one in tomllib.loads(_LOCK.read_text())["package"]}
        both = {
            name: (versions.get(name, "not there"), locked.get(_DISTRIBUTIONS.get(name, name), "")) for name in _TOLD
        }
        for name, (here, lock) in both.items():
            if here != lock:
                print(f"{name}: {here}; uv.lock has {lock}")
        self.versions = {"Python": [versions["Python"], ""], **{name: list(pair) for name, pair in both.items()}}

    def left(self, wanted: Sequence[Slice]) -> list[Slice]:
        """Those that never had a turn, then those that had not come to their end, then those that failed.

        Each in the order of their worth.
        """
        states = {each.name: self.slices.get(each.name, {}).get("state") for each in wanted}
        new = [each for each in wanted if states[each.name] in (None, State.SKIPPED)]
        return new + [each for state in (State.GOES_ON, State.FAILED) for each in wanted if states[each.name] == state]

    def do(self, each: Slice, versions: Mapping[str, str], environment: Mapping[str, str], seconds: float) -> None:
        """Run a slice for so many seconds at most, and note how it ended."""
        if lacking := [_DISTRIBUTIONS.get(name, name) for name in each.needs if name not in versions]:
            self._note(each, State.SKIPPED, 0.0, f"not installed: {', '.join(lacking)}")
            return
        print(f"== {each.name}: {each.asks} (at most {seconds / 60:.1f} min)", flush=True)
        log = self._folder / f"{each.name}.log"
        script, *arguments = each.program
        command = [
            sys.executable,
            str(ROOT / "bench" / script),
            *arguments,
            "--result",
            str(self._folder / each.result),
        ]
        began = time.monotonic()
        code = _run(command, log, environment, seconds)
        took = time.monotonic() - began
        if code is None:
            self._note(each, State.GOES_ON, took, f"ended at its bound of {seconds / 60:.1f} min")
        else:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            said = lines[-1].strip()[:_KEPT_WORDS] if lines else ""
            self._note(each, State.FAILED if code else State.DONE, took, said)

    def write_page(self) -> Path:
        """The page of all that is known by now."""
        results = {each.result for each in SLICES}
        found = {
            name.removeprefix("gpu-").removesuffix(".json"): json.loads((self._folder / name).read_text())
            for name in results
            if (self._folder / name).exists()
        }
        asked = [(each.name, each.asks, each.minutes) for each in SLICES]
        page = self._folder / "gpu-day.md"
        _replace(page, gpu_page.page(asked, self.slices, self.versions, found))
        return page

    def _note(self, each: Slice, state: State, seconds: float, why: str) -> None:
        self.slices[each.name] = {"state": state, "seconds": round(seconds, 1), "why": why}
        print(f"== {each.name}: {state}{f': {why}' if why else ''} ({seconds:.0f} s)", flush=True)
        self._write()

    def _write(self) -> None:
        _replace(self._path, json.dumps({"slices": self.slices, "versions": self.versions}, indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def installed(environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of what this Python can import, by the import's name, and its own."""
    program = f"""
import importlib.metadata, importlib.util, json, platform
names, found = {_DISTRIBUTIONS!r}, {{"Python": platform.python_version()}}
for name in {_TOLD!r}:
    if importlib.util.find_spec(name):
        try:
            found[name] = importlib.metadata.version(names.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            found[name] = "unknown"
print(json.dumps(found))
"""
    asked = subprocess.run(
        [sys.executable, "-c", program], env=dict(environment), capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def surroundings(wheels: Path | None, site: Path) -> dict[str, str]:
    """The environment of slices: the product's sources, and the packages of the wheels before what is installed."""
    paths = [str(ROOT / name / "src") for name in _SOURCES]
    if wheels:
        paths.append(str(unpacked(wheels, site)))
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def unpacked(wheels: Path, site: Path) -> Path:
    """The content of all wheels of a folder, in one folder. Ends this program where they are too many or too large."""
    files = sorted(wheels.glob("*.whl"))
    size = sum(file.stat().st_size for file in files)
    if not files or size > MAX_WHEELS:
        sys.exit(
            f"{wheels} has {len(files)} wheels of {size >> 20} MiB: at least one, and at most {MAX_WHEELS >> 20} MiB"
        )
    for file in files:
        with zipfile.ZipFile(file) as archive:
            archive.extractall(site)
    return site


def _run(command: Sequence[str], log: Path, environment: Mapping[str, str], seconds: float) -> int | None:
    """The exit code; None where it was ended at its bound. Nothing that it started outlives it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(_SECONDS_TO_END)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="do no more after so many")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of what this Python lacks")
    parser.add_argument("--only", nargs="+", choices=_NAMES, metavar="SLICE")
    parser.add_argument("--again", nargs="+", choices=_NAMES, default=[], metavar="SLICE")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
