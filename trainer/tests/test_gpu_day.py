"""A day with a GPU, tried without one: slices of programs that were made up here, and the page of figures that were."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local import patience

_BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(_BENCH))
import gpu_day  # noqa: E402 - bench/ is no package
import gpu_page  # noqa: E402
import gpu_tests  # noqa: E402
from gpu_slices import SLICES, Slice  # noqa: E402

sys.path.remove(str(_BENCH))

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSIONS = {"Python": "3.12.3", "torch": "2.11.0"}
_STEP = {
    "facts": {"double": 4, "pixels": 1024, "batch": 1, "rounds": 20, "gpu": "NVIDIA H100", "torch": "2.13.0"},
    "results": {
        "a job, compiled": {
            "ms_per_image": 95.12, "mfu": 0.5, "peak_gb": 31.2, "all_blocks_ms_model": 451.8, "attention": "flash",
            "kernels": ["3.00 ms a kernel"],
        },
        "a job, eager": {"error": "does not fit"},
    },
}  # fmt: skip
_NETWORK = {
    "ranks": 32, "nodes": 4, "mebibytes": 256, "all_reduce": 1.5, "bus_bandwidth": 346.7, "ring": {"0": 1.0, "1": 2.0},
    "networks": {"0": "IB with GPUDirect RDMA"}, "fabric": {},
}  # fmt: skip
_TESTS = """<testsuites><testsuite>
<testcase name="test_a_mask_is_one" time="2.5"/>
<testcase name="test_memory" time="3"><properties><property name="peak" value="31 GB"/></properties></testcase>
<testcase name="test_contexts" time="0"><skipped message="needs two GPUs"/></testcase>
<testcase name="test_a_step" time="1"><failure message="assert 1 == 2"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def day(tmp_path: Path) -> gpu_day.Day:
    return gpu_day.Day(tmp_path / "day")


@pytest.fixture
def asking(tmp_path: Path) -> Callable[..., Slice]:
    """A slice of a program, which finds the file of its result in RESULT."""

    def make(program: str, name: str = "one", **facts: Any) -> Slice:
        path = tmp_path / f"{name}.py"
        path.write_text(f"import sys; RESULT = sys.argv[-1]\n{program}")
        given = {"asks": "what?", "minutes": 1.0, "result": f"{name}.json", "needs": (), **facts}
        return Slice(name=name, program=(str(path), *given.pop("arguments", ())), **given)

    return make


def test_no_slice_is_longer_than_eight_minutes_and_the_first_say_whether_anything_works() -> None:
    assert max(each.minutes for each in SLICES) <= 8
    assert [each.name for each in SLICES[:3]] == ["machine", "trains", "findings"]
    assert all((_BENCH / each.program[0]).exists() for each in SLICES)


def test_slices_name_contenders_and_test_files_that_there_are() -> None:
    steps = (_BENCH / "gpu_step.py").read_text()
    for each in SLICES:
        if each.program[0] == "gpu_step.py":
            assert all(f'"{name}"' in steps for name in each.program[2:])
        if each.program[0] == "gpu_tests.py":
            assert set(each.program[1:]) <= set(gpu_tests.marked())


def test_a_slice_that_ends_well_is_not_done_twice_and_one_that_fails_says_why_and_comes_last(
    day: gpu_day.Day, asking: Callable[..., Slice]
) -> None:
    good, bad = asking("", "good"), asking("sys.exit('no GPU is there')", "bad")
    for each in (good, bad):
        day.do(each, _VERSIONS, os.environ, 60.0)
    assert day.slices["good"]["state"] == "done"
    assert day.slices["bad"]["state"] == "failed"
    assert "no GPU is there" in day.slices["bad"]["why"]
    assert day.left([bad, good, asking("", "new")])[-1] == bad
    assert good not in day.left([good, bad])


def test_one_that_is_ended_at_its_bound_keeps_what_it_found_and_goes_on_after_those_that_had_no_turn(
    day: gpu_day.Day, asking: Callable[..., Slice], tmp_path: Path
) -> None:
    endless = asking("import time; open(RESULT, 'w').write('{}')\nwhile True: time.sleep(1)", "endless")
    new = asking("", "new")
    day.do(endless, _VERSIONS, os.environ, 3.0)
    assert day.slices["endless"]["state"] == "goes on at the next call"
    assert (tmp_path / "day" / "endless.json").read_text() == "{}"
    # As the next call finds it.
    assert gpu_day.Day(tmp_path / "day").left([endless, new]) == [new, endless]


def test_one_that_lacks_a_package_is_skipped_with_its_name_and_looked_at_again(
    day: gpu_day.Day, asking: Callable[..., Slice]
) -> None:
    lacking = asking("", needs=("torch", "deepspeed", "pynvml"))
    day.do(lacking, _VERSIONS, os.environ, 60.0)
    assert day.slices["one"]["why"] == "not installed: deepspeed, nvidia-ml-py"
    assert day.left([lacking]) == [lacking]
    day.do(lacking, {**_VERSIONS, "deepspeed": "0.19.8", "pynvml": "13"}, os.environ, 60.0)
    assert day.slices["one"]["state"] == "done"


def test_what_is_done_anew_forgets_its_own_part_of_a_file_that_others_share(
    day: gpu_day.Day, asking: Callable[..., Slice], tmp_path: Path
) -> None:
    shared = tmp_path / "day" / "shared.json"
    shared.write_text(json.dumps({"facts": {}, "results": {"a": 1, "b": 2}}))
    one, other = (asking("", name, result="shared.json", arguments=("--only", name)) for name in ("a", "b"))
    for each in (one, other):
        day.do(each, _VERSIONS, os.environ, 60.0)
    day.forget([one])
    assert day.left([one, other]) == [one]
    assert json.loads(shared.read_text())["results"] == {"b": 2}


def test_versions_that_are_not_the_locks_are_told(day: gpu_day.Day, capsys: pytest.CaptureFixture[str]) -> None:
    day.note_versions(_VERSIONS)
    assert day.versions["torch"][0] == "2.11.0"
    assert f"torch: 2.11.0; uv.lock has {day.versions['torch'][1]}" in capsys.readouterr().out.splitlines()


def test_wheels_are_taken_before_what_is_installed_and_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing/__init__.py", "VALUE = 7")
    environment = gpu_day.surroundings(tmp_path, tmp_path / "site")
    assert str(tmp_path / "site") in environment["PYTHONPATH"].split(os.pathsep)
    assert (tmp_path / "site" / "thing" / "__init__.py").read_text() == "VALUE = 7"
    monkeypatch.setattr(gpu_day, "MAX_WHEELS", 8)
    with pytest.raises(SystemExit, match="at most 0 MiB"):
        gpu_day.unpacked(tmp_path, tmp_path / "site")


def test_the_page_has_each_figure_and_what_failed_or_was_skipped_and_why() -> None:
    found = {
        "machine": {"GPUs": "8 x NVIDIA H100"},
        "step": _STEP,
        "network": _NETWORK,
        "tests": {"results": {"test_a.py": gpu_tests.read(_TESTS)}},
    }
    slices = {"block": {"state": "skipped", "seconds": 0.0, "why": "not installed: diffusers"}}
    lines = gpu_page.page([("block", "ms?", 8.0), ("xid", "XIDs?", 3.0)], slices, {}, found).splitlines()
    assert "| block | ms? | skipped | 0 of 480 | not installed: diffusers |" in lines
    assert "| xid | XIDs? | not begun | 0 of 180 |  |" in lines
    assert "| GPUs | 8 x NVIDIA H100 |" in lines
    assert "| a job, compiled | 95.1 | 50.0% | 31.2 | 452 | flash |" in lines
    assert "| a job, eager | does not fit |  |  |  |  |" in lines
    assert "- a job, compiled: 3.00 ms a kernel" in lines
    assert "| bus bandwidth | 346.7 GB/s |" in lines
    assert "| NCCL's network between nodes | IB with GPUDirect RDMA |" in lines
    assert "| test_a.py | a mask is one | passed |  | 2.5 |" in lines
    assert "| test_a.py | contexts | skipped | needs two GPUs | 0.0 |" in lines
    assert "| test_a.py | a step | **failed** | assert 1 == 2 | 1.0 |" in lines
    assert "| test_a.py | memory | passed | peak: 31 GB | 3.0 |" in lines
    assert not [line for line in lines if line.startswith("## Not tried")]


def test_a_page_without_a_gpu_says_what_was_not_tried() -> None:
    lines = gpu_page.page([], {}, {}, {"machine": {"GPUs": "none: RuntimeError: no driver"}}).splitlines()
    assert lines[lines.index("## Not tried, for want of a GPU") + 4 :] == [f"- {one}" for one in gpu_page.UNTRIED]


def test_the_exchange_is_measured_by_any_ranks_a_dry_run_on_the_cpu_shows() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    program = [sys.executable, str(_BENCH / "gpu_network.py"), "--cpus", "2", "--master", f"127.0.0.1:{port}"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, check=False, timeout=patience.SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks of 1 nodes: " in done.stdout


@pytest.mark.deep
def test_a_job_trains_and_resumes_under_the_agent_a_dry_run_on_the_cpu_shows(tmp_path: Path) -> None:
    program = [sys.executable, str(_BENCH / "gpu_trains.py"), "--cpu", "--result", str(tmp_path / "found.json")]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = json.loads((tmp_path / "found.json").read_text()).values()
    assert [(one["code"], one["steps"], one["first step"]) for one in found] == [(0, 20, 1), (0, 20, 21)]
