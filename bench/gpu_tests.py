"""The tests of the mark gpu, a file at a time, each in a process of its own; a file whose tests passed already is left out.

    .venv/bin/python bench/gpu_tests.py [--result FILE] [FILE ...]     files below trainer/tests; else all with the mark

`--others`: of these, all that no other slice of `make gpu-day` has.

Results stand there after each file. One in which a test failed, none was tried, or at which a run was ended is tried again,
but after all others: it may hang.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import gpu_results
from data_report import RESULTS
from gpu_slices import SLICES, others

TRAINER = Path(__file__).resolve().parents[1] / "trainer"
_ENDED = [
    {
        "name": "all",
        "result": "failed",
        "found": "ended while it ran; bench/gpu_tests.py FILE has no bound",
        "seconds": 0.0,
    }
]


def main() -> int:
    """Run what is left; 1 where a test failed, or all were skipped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-tests.json")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    results = gpu_results.results(options.result)
    files = options.files or list(marked())
    if options.others:
        files = [name for name in files if name not in others(SLICES[-1])]
    for name in left(files, results):
        gpu_results.write(options.result, {"results": results | {name: _ENDED}})
        results[name] = run(name)
        gpu_results.write(options.result, {"results": results})
        for one in results[name]:
            print(f"{name}: {one['name']}: {one['result']} {one['found']}", flush=True)
    ended = Counter(one["result"] for name in files for one in results[name])
    print(", ".join(f"{count} {result}" for result, count in sorted(ended.items())))
    return 0 if ended["passed"] and not ended["failed"] else 1


def left(files: Sequence[str], results: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Files without results, then those in which nothing passed or something failed, and last those that were ended."""
    new = [name for name in files if name not in results]
    kinds = {name: {one["result"] for one in results.get(name, ())} for name in files}
    bad = [name for name in files if name not in new and ("failed" in kinds[name] or "passed" not in kinds[name])]
    return new + sorted(bad, key=lambda name: results[name] == _ENDED)


def marked() -> Iterator[str]:
    """Files with a test of the mark, by what they say."""
    for path in sorted((TRAINER / "tests").rglob("test_*.py")):
        if "mark.gpu" in path.read_text("utf-8"):
            yield path.relative_to(TRAINER / "tests").as_posix()


def run(name: str) -> list[dict[str, Any]]:
    """Run a file's tests of the mark: name, result, what they recorded or why they did not pass, and seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # The settings of pyproject.toml ask for plugins that another Python may lack.
        own = ["-c", os.devnull, "--rootdir", str(TRAINER), "--import-mode", "importlib", "-p", "no:cacheprovider"]
        plugin = [] if _has_plugin() else ["-p", "oarlock_local.pytest_plugin"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *own,
            *plugin,
            "-m",
            "gpu",
            f"--junitxml={report}",
            f"tests/{name}",
        ]
        done = subprocess.run(command, cwd=TRAINER, capture_output=True, text=True, check=False)
        print(done.stdout, done.stderr, sep="\n", flush=True)
        found = read(report.read_text()) if report.exists() and report.stat().st_size else []
        if found and done.returncode in (0, 1):
            return found
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    why = f"pytest ended with {done.returncode}: {last}"
    return [*found, {"name": name, "result": "failed", "found": why, "seconds": 0.0}]


def _has_plugin() -> bool:
    """Whether pytest finds the plugin by its entry point, as where `make setup` ran."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    return any(point.name == "oarlock_local" for point in entry_points(group="pytest11"))


def read(text: str) -> list[dict[str, Any]]:
    """Tests of a JUnit file of pytest's."""
    found = []
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - pytest's own file
        kinds = {child.tag: child for child in case}
        failed = kinds.get("failure", kinds.get("error"))
        skipped = kinds.get("skipped")
        told = "; ".join(f"{one.get('name')}: {one.get('value')}" for one in case.iter("property"))
        why = failed if failed is not None else skipped
        found.append(
            {
                "name": case.get("name", "").removeprefix("test_").replace("_", " "),
                "result": "failed" if failed is not None else "skipped" if skipped is not None else "passed",
                "found": told if why is None else why.get("message", "").strip().partition("\n")[0][:300],
                "seconds": float(case.get("time", 0)),
            }
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
