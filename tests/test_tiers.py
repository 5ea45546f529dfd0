"""The two tiers: what belongs to which, what fits into some minutes, and what the README's promises rest on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import budget, moved, promises, report
from tests.tiers.budget import File
from tests.tiers.lanes import Part

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
    parts = [Part("api", ("tests/test_d.py",)), Part("tests", ("e2e/test_a.py", "e2e/test_b.py", "e2e/test_new.py"))]
    taken, left_out = budget.fitting(parts, minutes=4)
    assert taken == [Part("api", ("tests/test_d.py",)), Part("tests", ("e2e/test_b.py", "e2e/test_new.py"))]
    assert left_out == [File("tests/e2e/test_a.py", 300)]
    assert "tests/e2e/test_a.py (300 s)" in budget.told(left_out, minutes=4)


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
        "a/x.py::gone",
    ]
    rows = moved.fates(
        old,
        quick={"a/tests/test_a.py::kept", "a/tests/test_a.py::some[1]"},
        deep={"a/tests/test_a.py::some[2]"},
        told={"a/x.py::merged": ("merged", "b/y.py::same")},
    )
    assert rows == [
        ("a/tests/test_a.py", "2", "kept", ""),
        ("a/tests/test_a.py::some", "1", "deep", "some cases are quick"),
        ("a/x.py::gone", "1", "LOST", "in no list of tests/tiers/merged"),
        ("a/x.py::merged", "1", "merged", "b/y.py::same"),
    ]
