"""The tests of the mark gpu, a file at a time, each in a process of its own; a file that has results already is left out.

    .venv/bin/python bench/gpu_tests.py [--result FILE] [FILE ...]     files below trainer/tests; else all with the mark

Results stand there after each file. One at which a run was ended is tried again, but after all others: it may hang.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from data_report import RESULTS

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
    """Run what has no results; 1 where a test failed or a file has no result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", type=Path, default=RESULTS / "gpu" / "gpu-tests.json")
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    options.result.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = json.loads(options.result.read_text())["results"] if options.result.exists() else {}
    files = options.files or list(marked())
    too_long = [name for name in files if results.get(name) == _ENDED]
    for name in [name for name in files if name not in results] + too_long:
        _keep(options.result, results | {name: _ENDED})
        results[name] = run(name)
        _keep(options.result, results)
        for one in results[name]:
            print(f"{name}: {one['name']}: {one['result']} {one['found']}", flush=True)
    ended = Counter(one["result"] for name in files for one in results[name])
    print(", ".join(f"{count} {result}" for result, count in sorted(ended.items())))
    return 1 if ended["failed"] else 0


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
        print(done.stdout, done.stderr, sep="\n")
        if report.exists() and (found := read(report.read_text())):
            return found
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return [{"name": name, "result": "failed", "found": f"pytest ended with {done.returncode}: {last}", "seconds": 0.0}]


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


def _keep(path: Path, results: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"results": results}, indent=1) + "\n")
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main())
