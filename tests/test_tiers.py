"""The two tiers: what belongs to which, what fits into some minutes, and what the README's promises rest on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oarlock_local.pytest_records import FOLDER
from oarlock_local.pytest_tiers import Tier
from tests.changed import Nearness
from tests.tiers import budget, moved, promises, report
from tests.tiers.budget import File
from tests.tiers.lanes import Ended, Part, Runs, parts_of, run_pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SMALL = """
import pytest
from oarlock_local.pytest_tiers import examples

def test_pure(): assert examples(400) == {examples}
def test_of_a_control_plane(control_plane_name): ...
@pytest.mark.cluster
def test_of_a_cluster(): ...
@pytest.mark.nodes
def test_of_nodes(): ...
@pytest.mark.deep
def test_deep(): ...
@pytest.mark.nodes
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.smoke("trains")), 1])
def test_smoke(rank): ...
@pytest.mark.parametrize("nodes", [3])
def test_of_numbers(nodes): ...
@pytest.fixture
def control_plane_name(): ...
"""
PURE = {"test_pure", "test_of_a_control_plane", "test_of_numbers[3]"}


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("arguments", "ran"),
    [
        ((), {*PURE, "test_of_a_cluster", "test_of_nodes", "test_deep", "test_smoke[0]", "test_smoke[1]"}),
        (("--tier", "quick"), {*PURE, "test_of_a_cluster", "test_smoke[0]"}),
        (("--tier", "deep"), {"test_of_nodes", "test_deep", "test_smoke[1]"}),
        (("--tier", "quick", "--lane", "pure"), PURE),
        (("--tier", "quick", "--lane", "control-plane"), {"test_of_a_cluster"}),
        (("--tier", "quick", "--lane", "nodes"), {"test_smoke[0]"}),
    ],
    ids=["all", "quick", "deep", "quick, pure", "quick, control plane", "quick, nodes"],
)
def test_a_tier_and_a_lane_hold_what_their_marks_say(arguments: tuple[str, ...], ran: set[str], tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SMALL.replace("{examples}", "25" if "quick" in arguments else "400"))
    ended = run(tmp_path, *arguments)
    passed = {line.rpartition("::")[2] for line in ended.stdout.splitlines() if line.startswith("PASSED")}
    assert (passed, ended.returncode) == (ran, 0), ended.stdout


def test_a_part_without_a_test_of_the_tier_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text("def test_pure(): ...")
    assert run(tmp_path, "--tier", "deep").returncode == 0


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "with a worker"])
@pytest.mark.parametrize(
    "breaks", ["import nothing_of_the_kind", "import os\ndef test_dies(): os._exit(9)"], ids=["at import", "in a test"]
)
def test_tests_that_are_lost_fail_the_run_by_another_code_than_one_that_failed(
    breaks: str, workers: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "test_small.py").write_text("def test_fails(): assert False")
    (tmp_path / "test_lost.py").write_text(breaks)
    ended = run(tmp_path, "--tier", "quick", *workers)
    assert ended.returncode not in (0, 1), ended.stdout


TOLD = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with pathlib.Path("{home}/told").open("a") as told: told.write(f"{name} {os.getpid()}\\n")
"""


def test_the_tests_of_a_file_stay_with_one_worker(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(TOLD.replace("{home}", str(tmp_path)).replace("{name}", name))
    assert run(tmp_path, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder").returncode == 0
    told = (tmp_path / "told").read_text().splitlines()
    assert (len(told), len(set(told))) == (16, 2), "else each worker makes anew what a file's tests share"


def told(test: str, outcome: str = "passed", **more: str) -> dict[str, object]:
    """A line of a test's record."""
    return {"test": f"api/tests/{test}", "tier": "quick", "outcome": outcome, "seconds": 1, "cpu": 1, **more}


class Played:
    """Stands in for pytest: its first run leaves these records, and its runs end with these codes."""

    def __init__(self, *codes: int, records: Sequence[Mapping[str, object]]) -> None:
        self.codes, self.records = list(codes), records
        self.parts: list[Part] = []
        self.arguments: list[Sequence[str]] = []

    def __call__(
        self, part: Part, arguments: Sequence[str], environment: Mapping[str, str], *, streams: bool
    ) -> tuple[int, str]:
        self.parts.append(part)
        self.arguments.append(arguments)
        if FOLDER in environment:
            folder = Path(environment[FOLDER])
            folder.mkdir(parents=True)
            (folder / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.records))
        return self.codes.pop(0), "" if streams else "what pytest said\n"


FAILED = told("test_a.py::fails", "failed", phase="call")


@pytest.mark.parametrize(
    ("played", "ended", "tries"),
    [
        pytest.param(Played(0, records=[{"holds": 1}, told("test_a.py::a")]), Ended.PASSED, 1, id="all passed"),
        pytest.param(Played(1, 0, records=[{"holds": 1}, FAILED]), Ended.ALONE, 2, id="passes alone"),
        pytest.param(Played(1, 1, records=[{"holds": 1}, FAILED]), Ended.FAILED, 2, id="fails alone, too"),
        pytest.param(Played(0, records=[{"holds": 2}, told("test_a.py::a")]), Ended.FAILED, 1, id="one was lost"),
        pytest.param(Played(1, records=[{"holds": 2}, FAILED]), Ended.FAILED, 1, id="one was lost beside a failure"),
        pytest.param(
            Played(1, records=[{"holds": 1}, {**FAILED, "phase": "teardown"}]), Ended.FAILED, 1, id="at the end of all"
        ),
        pytest.param(Played(3, records=[]), Ended.FAILED, 1, id="pytest broke"),
        pytest.param(Played(1, records=[{"holds": 1}, told("test_a.py::a")]), Ended.FAILED, 1, id="no test failed"),
    ],
)
def test_a_run_has_passed_only_if_all_its_tests_have_ended_well(
    played: Played, ended: Ended, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    runs = Runs(Tier.QUICK, 1, ("--no-header",), played)
    runs.run(Part("api"), "--lane", "pure")
    runs.try_again_alone()
    assert (runs.ended, len(played.parts)) == (ended, tries)
    assert all("--no-header" in arguments for arguments in played.arguments)
    if tries > 1:
        assert played.parts[1] == Part("api", ("tests/test_a.py::fails",))


LEFT_BEHIND = """
import os, pytest

@pytest.fixture(scope="session")
def shared():
    yield
    assert {well}, "a fault that is found at the end"

def test_it(shared): ...
def test_skipped(shared): pytest.skip("for a reason")
def test_leaves(): {leaves}
"""


@pytest.mark.parametrize(
    ("well", "leaves", "ended"),
    [("True", "...", Ended.PASSED), ("False", "...", Ended.FAILED), ("True", "os._exit(0)", Ended.FAILED)],
    ids=["all is well", "a fixture of all fails at the end", "a test leaves with 0"],
)
def test_real_runs_are_judged_by_what_they_leave(
    well: str, leaves: str, ended: Ended, skipping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(skipping / "records"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("tests.tiers.lanes.ROOT", skipping)
    (skipping / "api").mkdir()
    (skipping / "api/test_it.py").write_text(LEFT_BEHIND.format(well=well, leaves=leaves))
    runs = Runs(Tier.QUICK, 1, ("-p", "no:cacheprovider"), run_pytest)
    runs.run(Part("api"))
    assert runs.ended is ended


def test_a_module_that_is_skipped_as_a_whole_fails_the_run_where_ci_judges(
    skipping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (skipping / "test_whole.py").write_text("import pytest\npytest.skip('no GPU here', allow_module_level=True)")
    monkeypatch.delenv(FOLDER, raising=False)
    for judged, code in (("true", pytest.ExitCode.INTERNAL_ERROR), ("", pytest.ExitCode.OK)):
        monkeypatch.setenv("CI", judged)
        assert run(skipping, "--deselect", "test_skips.py::test_unknown").returncode == code


SKIPPING = """
import pytest

def test_known(): pytest.skip("no GPU here, as everybody knows")
def test_unknown(): pytest.skip("nobody knows of it")
def test_passes(): ...
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
"""


@pytest.fixture
def skipping(tmp_path: Path) -> Path:
    (tmp_path / "uv.lock").touch()
    (tmp_path / "tests/tiers").mkdir(parents=True)
    (tmp_path / "tests/tiers/skips.txt").write_text("# a comment\ntest_skips.py\tno GPU here\n")
    (tmp_path / "test_skips.py").write_text(SKIPPING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


@pytest.mark.parametrize(("judged", "failed"), [("true", ["test_unknown"]), ("", [])], ids=["in CI", "elsewhere"])
def test_where_ci_judges_a_skip_that_is_not_on_the_list_fails(
    judged: str, failed: list[str], skipping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", judged)
    monkeypatch.delenv("OARLOCK_TEST_RECORDS", raising=False)  # what fails here is no failure of this run
    ended = run(skipping)
    said = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert [line.partition("::")[2].split()[0] for line in said] == failed, ended.stdout
    assert all("nobody knows of it" in line for line in said)


def test_each_test_leaves_a_line_of_what_it_cost_and_how_it_ended(
    skipping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OARLOCK_TEST_RECORDS", str(skipping / "records"))
    monkeypatch.delenv("CI", raising=False)
    run(skipping, "-n", "1")
    found = {test.name: test for test in report.read(skipping / "records")}
    assert {name.partition("::")[2]: test.outcome for name, test in found.items()} == {
        "test_known": "skipped",
        "test_unknown": "skipped",
        "test_passes": "passed",
        "test_is_expected_to_fail": "skipped",
    }
    assert found["test_skips.py::test_unknown"].reason == "nobody knows of it"
    assert found["test_skips.py::test_passes"].seconds >= 0


def test_what_fits_into_some_minutes_is_the_cheapest_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "COSTS", tmp_path / "deep.tsv")
    budget.COSTS.write_text("tests/e2e/test_a.py\t300\ntests/e2e/test_b.py\t100\napi/tests/test_d.py\t5\n")
    near, far = Nearness.BY_TABLE, Nearness.LEADS_THERE
    names = ("api/tests/test_d.py", "tests/e2e/test_a.py", "tests/e2e/test_b.py", "tests/e2e/test_new.py")
    chosen = {**dict.fromkeys(names, near), "tests/soak/test_soak.py": near}
    taken, left_out = budget.fitting(chosen, minutes=4)
    assert parts_of(taken) == [Part("api", ("tests/test_d.py",)), Part("tests", ("e2e/test_b.py", "e2e/test_new.py"))]
    assert left_out == [File("tests/e2e/test_a.py", 300)]
    said = budget.told(chosen, left_out, minutes=4)
    assert "tests/e2e/test_a.py (300 s)" in said
    assert "not run here: what the change can break of soak" in said
    taken, left_out = budget.fitting({**chosen, "tests/e2e/test_b.py": far, "tests/e2e/test_new.py": far}, minutes=4)
    assert taken[-1] == "tests/e2e/test_a.py", "what is near comes first, though it is dear"


def test_costs_are_those_of_deep_tests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "COSTS", tmp_path / "deep.tsv")
    lines = [
        {
            "test": f"api/tests/test_{name}.py::test_it[{case}]",
            "tier": tier,
            "outcome": "passed",
            "seconds": 2,
            "cpu": 1,
        }
        for name, case, tier in (("a", 1, "deep"), ("a", 2, "deep"), ("a", 3, "quick"), ("b", 1, "quick"))
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    budget.write(report.read(tmp_path))
    assert budget.read() == {"api/tests/test_a.py": 4}


def test_the_committed_table_of_promises_is_what_the_tests_say() -> None:
    assert promises.PAGE.read_text(encoding="utf-8") == promises.table()


@pytest.fixture
def promising(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(" ".join(promises.PROMISES.values()))
    marks = "".join(
        f"@pytest.mark.smoke({name!r})\ndef test_{number}(): ...\n" for number, name in enumerate(promises.PROMISES)
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_all.py").write_text(marks)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "was", "is_", "said"),
    [
        ("tests/test_all.py", "'trains'", "'trains well'", "no promise"),
        ("tests/test_all.py", "'trains'", "'has spares'", "'trains' has no test"),
        ("README.md", "suspend and resume", "resume", "no longer says 'suspend and resume'"),
    ],
    ids=["a test for what nobody promises", "a promise without a test", "words that are gone"],
)
def test_promises_and_tests_that_do_not_belong_together_are_told(
    file: str, was: str, is_: str, said: str, promising: Path
) -> None:
    promises.table(promising)
    path = promising / file
    path.write_text(path.read_text().replace(was, is_))
    with pytest.raises(promises.Unkept, match=said):
        promises.table(promising)


def test_each_test_of_an_earlier_commit_has_a_fate() -> None:
    old = [
        "a/tests/test_a.py::kept",
        "a/tests/test_a.py::some[1]",
        "a/tests/test_a.py::some[2]",
        "a/x.py::merged[1]",
        "a/x.py::merged_into_nothing",
        "a/x.py::gone",
    ]
    rows = moved.fates(
        old,
        quick={"a/tests/test_a.py::kept", "a/tests/test_a.py::some[1]", "b/y.py::same[1]"},
        deep={"a/tests/test_a.py::some[2]"},
        told={
            "a/x.py::merged": ("merged", "b/y.py::same"),
            "a/x.py::merged_into_nothing": ("merged", "b/y.py::other"),
        },
    )
    assert rows == [
        ("a/tests/test_a.py", "2", "kept", ""),
        ("a/tests/test_a.py::some", "1", "deep", "some cases are quick"),
        ("a/x.py::gone", "1", "LOST", "in no list of tests/tiers/merged"),
        ("a/x.py::merged", "1", "merged", "b/y.py::same"),
        ("a/x.py::merged_into_nothing", "1", "LOST", "b/y.py::other"),
    ]
