"""A day with a GPU, tried without one: slices of programs that were made up here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_local import patience

_BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(_BENCH))
import gpu_day  # noqa: E402
import gpu_process  # noqa: E402
import gpu_python  # noqa: E402
import gpu_results  # noqa: E402
import gpu_tests  # noqa: E402
from gpu_slices import SLICES, Slice, named, others  # noqa: E402

sys.path.remove(str(_BENCH))

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSIONS = {"Python": "3.12.3", "torch": "2.11.0"}


@pytest.fixture
def day(tmp_path: Path) -> gpu_day.Day:
    return gpu_day.Day(tmp_path / "day")


@pytest.fixture
def asking(tmp_path: Path) -> Callable[..., Slice]:
    """A slice of a program, which finds the file of its result in RESULT."""

    def make(program: str, name: str = "one", **facts: Any) -> Slice:
        path = tmp_path / f"{name}.py"
        path.write_text(f"import sys; RESULT = sys.argv[-1]\nopen(RESULT, 'a').close()\n{program}")
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
            assert named(each) <= set(gpu_tests.marked())
    assert named(SLICES[-1]) == set()
    assert others(SLICES[-1]) >= {"health/test_on_gpu.py", "plan/test_activations.py"}


def test_a_python_that_is_too_old_is_told_so_and_not_what_it_lacks() -> None:
    old = f"import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_path({str(_BENCH / 'gpu_day.py')!r})"
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("make gpu-day needs Python 3.11 or later")


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


def test_what_all_other_tests_found_is_forgotten_without_that_of_tests_that_a_slice_names(
    day: gpu_day.Day, tmp_path: Path
) -> None:
    shared = tmp_path / "day" / "gpu-tests.json"
    gpu_results.write(shared, {"results": {"health/test_on_gpu.py": [], "engine/test_deepspeed.py": []}})
    day.forget([SLICES[-1]])
    assert list(gpu_results.results(shared)) == ["health/test_on_gpu.py"]


def test_one_that_the_end_of_a_call_cut_short_keeps_its_place(day: gpu_day.Day, asking: Callable[..., Slice]) -> None:
    endless, new = asking("while True: pass", "endless"), asking("", "new")
    day.do(endless, _VERSIONS, os.environ, 1.0, whole=False)
    assert day.left([endless, new]) == [endless, new]


def test_a_turn_that_said_nothing_has_not_the_last_words_of_the_turn_before(
    day: gpu_day.Day, asking: Callable[..., Slice]
) -> None:
    day.do(asking("print('all is well')"), _VERSIONS, os.environ, 60.0)
    day.do(asking("import os; os._exit(3)"), _VERSIONS, os.environ, 60.0)
    assert day.slices["one"]["why"] == "ended with 3"


def test_nothing_that_a_slice_started_outlives_it_nor_do_its_temporary_files(
    day: gpu_day.Day, asking: Callable[..., Slice], tmp_path: Path
) -> None:
    """One in a session of its own, and both deaf to SIGTERM."""
    program = f"""
import os, signal, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(tempfile.gettempdir() + "/checkpoint", "w").close()
open({str(tmp_path / "folder")!r}, "w").write(tempfile.gettempdir())
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        while True: time.sleep(1)
    os._exit(0)
os.wait()
while not os.path.exists({str(tmp_path / "pid")!r}): time.sleep(0.01)
"""
    day.do(asking(program), _VERSIONS, os.environ, 60.0)
    assert day.slices["one"]["state"] == "done"
    assert str(day._folder).encode() not in environment_of((tmp_path / "pid").read_text())
    assert not Path((tmp_path / "folder").read_text()).exists()


def environment_of(pid: str) -> bytes:
    """Nothing where the process is gone, or ended and not yet waited for."""
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""


def test_what_a_call_that_was_killed_left_behind_is_ended_by_the_next_one(tmp_path: Path) -> None:
    environment = {**os.environ, gpu_process.MARK: str(tmp_path)}
    left = subprocess.Popen([sys.executable, "-c", "while True: input()"], env=environment, stdin=subprocess.PIPE)
    assert gpu_process.end_marked(tmp_path / "another") == []
    assert gpu_process.end_marked(tmp_path) == [left.pid]
    assert left.wait(patience.SECONDS) == -signal.SIGKILL


def test_a_call_that_is_interrupted_notes_it_and_the_next_one_begins_there(
    day: gpu_day.Day, asking: Callable[..., Slice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    one, new = asking(""), asking("", "new")
    monkeypatch.setattr(gpu_process, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        day.do(one, _VERSIONS, os.environ, 60.0)
    assert gpu_day.Day(tmp_path / "day").left([one, new]) == [one, new]
    assert (tmp_path / "day" / "gpu-day.md").exists()


def test_two_calls_at_once_are_refused_and_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with gpu_day.alone(tmp_path), pytest.raises(SystemExit, match="another"), gpu_day.alone(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="take a copy"), gpu_day.alone(tmp_path / "file" / "folder"):
        pass


@pytest.mark.parametrize("text", ["", '{"slices": {"machine"', "[]", "\udcff"])
def test_damaged_files_are_put_aside_and_the_day_begins_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpu-day.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    day = gpu_day.Day(tmp_path)
    assert day.slices == {}
    assert (tmp_path / "gpu-day.json.damaged").exists()
    (tmp_path / "gpu-machine.json").write_text(text, errors="surrogateescape")
    assert day.write_page().exists()


def test_one_whose_file_is_gone_is_done_again(day: gpu_day.Day, asking: Callable[..., Slice], tmp_path: Path) -> None:
    one = asking("")
    day.do(one, _VERSIONS, os.environ, 60.0)
    assert day.left([one]) == []
    (tmp_path / "day" / "one.json").unlink()
    assert day.left([one]) == [one]


def test_a_call_that_sees_no_gpu_or_lacks_a_package_leaves_what_was_found(
    day: gpu_day.Day, asking: Callable[..., Slice]
) -> None:
    seen = {**_VERSIONS, gpu_day.GPUS: "1 x NVIDIA H200"}
    day.note_versions(seen)
    failing = asking("sys.exit(1)", needs=("deepspeed",))
    day.do(failing, {**seen, "deepspeed": "0.19.8"}, os.environ, 60.0)
    day.note_versions(_VERSIONS)
    day.do(failing, _VERSIONS, os.environ, 60.0)
    assert day.versions[gpu_day.GPUS][0] == "1 x NVIDIA H200"
    assert day.slices["one"]["state"] == "failed"
    assert day.left([failing]) == [failing]


def test_a_python_without_torch_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_day, "FOLDER", tmp_path)
    monkeypatch.setattr(gpu_day, "installed", lambda _: {"Python": "3.12.3"})
    with pytest.raises(SystemExit, match="has no torch: name a Python that has one"):
        gpu_day.main([])
    assert not (tmp_path / "gpu-day.json").exists()


def test_what_another_gpu_or_torch_found_is_put_aside(day: gpu_day.Day, tmp_path: Path) -> None:
    here = {**_VERSIONS, "GPUs": "1 x NVIDIA H200"}
    day.note_versions(_VERSIONS)  # nothing told of GPUs: that is no other
    day.note_versions(here)
    day.slices["machine"] = {"state": "done", "seconds": 1.0, "why": ""}
    (tmp_path / "day" / "gpu-step.json").write_text("{}")
    day.note_versions(here)
    assert day.slices
    day.note_versions({**here, "GPUs": "8 x NVIDIA H100"})
    assert day.slices == {}
    assert not (tmp_path / "day" / "gpu-step.json").exists()
    assert (tmp_path / "day" / "earlier-1" / "gpu-step.json").exists()


def test_versions_that_are_not_the_locks_are_told(day: gpu_day.Day, capsys: pytest.CaptureFixture[str]) -> None:
    day.note_versions(_VERSIONS)
    assert day.versions["torch"][0] == "2.11.0"
    assert f"torch: 2.11.0; uv.lock has {day.versions['torch'][1]}" in capsys.readouterr().out.splitlines()


def test_wheels_are_taken_before_what_is_installed_and_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "thing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing/__init__.py", "VALUE = 7")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "other.py").touch()  # of an earlier call's wheels
    monkeypatch.setenv("PYTHONPATH", "mine")
    environment = gpu_python.surroundings(tmp_path, tmp_path / "site")
    paths = environment["PYTHONPATH"].split(os.pathsep)
    assert paths[-2:] == [str(tmp_path / "site"), str(Path.cwd() / "mine")]
    assert (tmp_path / "site" / "thing" / "__init__.py").read_text() == "VALUE = 7"
    assert not (tmp_path / "site" / "other.py").exists()
    monkeypatch.setattr(gpu_python, "MAX_WHEELS", 8)
    with pytest.raises(SystemExit, match="at most 0 MiB"):
        gpu_python.unpacked(tmp_path, tmp_path / "site")


@pytest.mark.parametrize(
    ("name", "words"),
    [("thing-1.0-py3-none-any.whl", "is damaged"), ("thing-1.0-cp27-cp27m-any.whl", "another Python")],
)
def test_a_wheel_that_is_damaged_or_of_another_python_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"PK half of a file")
    with pytest.raises(SystemExit, match=f"{name}.*{words}|{words}.*{name}"):
        gpu_python.unpacked(tmp_path, tmp_path / "site")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("cffi-2.1.1-cp312-cp312-manylinux2014_x86_64.whl", True),
        ("cffi-2.1.1-cp311-cp311-manylinux2014_x86_64.whl", False),
        ("cryptography-50.0.2-cp311-abi3-manylinux2014_x86_64.whl", True),
        ("cryptography-50.0.2-cp313-abi3-manylinux2014_x86_64.whl", False),
    ],
)
def test_wheels_of_python_3_12_are_told_by_their_names(name: str, fits: bool) -> None:  # noqa: FBT001 - of a table
    assert gpu_python.fits(name, (3, 12)) is fits


def test_what_is_installed_is_asked_in_the_checkout_and_words_of_others_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bitsandbytes").mkdir()
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(gpu_python, "TOLD", ("pytest",))
    assert gpu_python.installed(gpu_python.surroundings(None, tmp_path / "site"))["pytest"] == pytest.__version__
