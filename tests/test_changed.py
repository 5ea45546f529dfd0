"""What `tests/run --changed` chooses, on a small repository and on this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from oarlock_local.pytest_tiers import Tier
from tests.changed import (
    AS_PEOPLE_DO,
    BY_FOLDER,
    Nearness,
    Repository,
    UnknownCommitError,
    changed_since,
    chosen_since,
)

ROOT = Path(__file__).parents[1]
FILES = {
    "api/src/oarlock_api/__init__.py": "",
    "api/src/oarlock_api/names.py": "NAME = 'n'",
    "operator/src/oarlock_operator/__init__.py": "",
    "operator/src/oarlock_operator/decide.py": "from oarlock_api.names import NAME",
    "operator/src/oarlock_operator/pace.py": "HINT = 'see oarlock_operator.decide, or run oarlock-trainer'",
    "operator/tests/worlds.py": "from oarlock_operator.decide import NAME",
    "operator/tests/test_decide.py": "def test_it():\n    from worlds import NAME",
    "operator/tests/test_pace.py": "from oarlock_operator import pace",
    "trainer/src/oarlock_trainer/__init__.py": "",
    "trainer/src/oarlock_trainer/cli.py": "START = ['python', '-m', 'oarlock_trainer.ranks']",
    "trainer/src/oarlock_trainer/ranks.py": "",
    "trainer/tests/conftest.py": (
        "import pytest\nfrom oarlock_trainer import ranks\n@pytest.fixture\ndef rank():\n    return ranks\n"
    ),
    "trainer/tests/test_cli.py": "RUN = 'oarlock-trainer train'",
    "trainer/tests/test_fixture.py": "def test_it(rank): ...",
    "trainer/tests/test_nothing.py": "def test_it(): ...",
    "trainer/tests/support/gang.py": "from oarlock_trainer import ranks",
    "trainer/tests/support/program.py": "import gang",
    "trainer/tests/runs/test_gang.py": "from gang import Gang",
    "trainer/tests/runs/test_program.py": "PROGRAM = SUPPORT / 'program.py'",
    "trainer/tests/models/conftest.py": (
        "import pytest\n@pytest.fixture(params=quick_first(['flux', 'wan']))\ndef tiny(request):\n    return request.param\n"
    ),
    "trainer/tests/models/test_captions.py": "def test_it(tiny): ...",
    "trainer/tests/models/test_nothing_tiny.py": "def test_it(): ...",
    "operator/tests/nodes/test_pool.py": "import pytest\n@pytest.mark.deep\ndef test_it():\n    from worlds import NAME",
    "operator/tests/test_gone_too.py": "def test_it():\n    from oarlock_operator import gone",
    "operator/tests/cases.yaml": "",
    "tests/e2e/test_client.py": "pytestmark = pytest.mark.nodes",
    "tests/e2e/test_gpu_faults.py": "pytestmark = pytest.mark.nodes",
    "tests/e2e/test_training.py": "pytestmark = pytest.mark.nodes",
    "tests/chart/test_values.py": "",
    "tests/releasing/test_versions.py": "",
    "charts/oarlock/values.yaml": "",
    "release/versions.py": "",
    "uv.lock": "",
}
ALL = {name for name in FILES if "/test_" in name}
OF_THE_GANG = {"trainer/tests/runs/test_gang.py", "trainer/tests/runs/test_program.py"}
OF_THE_OPERATOR = {name for name in ALL if name.startswith("operator/tests/")}
OF_DECISIONS = {"operator/tests/test_decide.py", "operator/tests/nodes/test_pool.py"}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (
            "api/src/oarlock_api/names.py",
            {*OF_DECISIONS, "tests/e2e/test_client.py", "tests/e2e/test_training.py"},
        ),
        ("operator/src/oarlock_operator/decide.py", {*OF_DECISIONS, "tests/e2e/test_gpu_faults.py"}),
        ("operator/src/oarlock_operator/pace.py", {"operator/tests/test_pace.py", "tests/e2e/test_gpu_faults.py"}),
        (
            "trainer/src/oarlock_trainer/ranks.py",
            {"trainer/tests/test_cli.py", "trainer/tests/test_fixture.py", *OF_THE_GANG, "tests/e2e/test_training.py"},
        ),
        ("trainer/tests/support/gang.py", OF_THE_GANG),
        ("trainer/tests/support/program.py", {"trainer/tests/runs/test_program.py"}),
        (
            "trainer/tests/conftest.py",
            {name for name in ALL if name.startswith("trainer/")},
        ),
        ("operator/tests/worlds.py", OF_DECISIONS),
        ("operator/tests/test_pace.py", {"operator/tests/test_pace.py"}),
        ("charts/oarlock/values.yaml", {"tests/chart/test_values.py", "tests/releasing/test_versions.py"}),
        ("release/versions.py", {"tests/releasing/test_versions.py"}),
        ("uv.lock", ALL),
        ("operator/src/oarlock_operator/gone.py", {"tests/e2e/test_gpu_faults.py", "operator/tests/test_gone_too.py"}),
        ("operator/src/oarlock_operator/page.css", {*OF_THE_OPERATOR, "tests/e2e/test_gpu_faults.py"}),
        ("operator/tests/cases.yaml", OF_THE_OPERATOR),
        ("operator/tests/test_gone.py", set()),
        ("bench/gone.py", set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_leads_to_a_change_is_chosen_and_nothing_else(changed: str, chosen: set[str], small: Path) -> None:
    found = {str(path.relative_to(small)) for path in Repository(small).broken_by([changed])}
    assert found == chosen


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def committed(small: Path) -> Path:
    git(small, "init")
    git(small, "add", ".")
    git(small, "commit", "-m", "first")
    return small


def test_what_git_does_not_know_yet_has_changed_too(committed: Path) -> None:
    (committed / "uv.lock").write_text("changed")
    (committed / "new.py").write_text("")
    assert changed_since(committed, "HEAD") == ["new.py", "uv.lock"]


def test_a_file_that_was_moved_has_changed_where_it_was_and_where_it_is(committed: Path) -> None:
    was, is_ = "operator/src/oarlock_operator/decide.py", "operator/src/oarlock_operator/decisions.py"
    git(committed, "mv", was, is_)
    assert changed_since(committed, "HEAD") == [was, is_]


def test_of_the_deep_tier_only_files_with_tests_of_it_are_chosen(committed: Path) -> None:
    (committed / "operator/src/oarlock_operator/decide.py").write_text("NAME = 'm'")
    found = {tier: chosen_since(committed, "HEAD", tier) for tier in (Tier.QUICK, Tier.DEEP)}
    deep = {
        "operator/tests/nodes/test_pool.py": Nearness.LEADS_THERE,
        "tests/e2e/test_gpu_faults.py": Nearness.BY_TABLE,
    }
    assert found[Tier.DEEP] == deep
    assert found[Tier.QUICK] == {**deep, "operator/tests/test_decide.py": Nearness.LEADS_THERE}


def test_a_test_that_has_changed_is_nearer_than_one_that_a_table_names(small: Path) -> None:
    found = Repository(small).broken_by(["tests/e2e/test_gpu_faults.py", "operator/src/oarlock_operator/decide.py"])
    assert found[small / "tests/e2e/test_gpu_faults.py"] is Nearness.CHANGED


def test_a_file_has_deep_tests_where_a_fixture_that_it_uses_has_deep_values(small: Path) -> None:
    repository = Repository(small)
    found = {name for name in ALL if repository.is_deep(small / name)}
    assert found == {
        "operator/tests/nodes/test_pool.py",
        "trainer/tests/models/test_captions.py",
        *(name for name in ALL if name.startswith("tests/e2e/")),
    }


def test_what_is_no_commit_is_refused_though_a_folder_has_its_name(committed: Path) -> None:
    with pytest.raises(UnknownCommitError, match="operator"):
        changed_since(committed, "operator")


@pytest.mark.parametrize("table", [AS_PEOPLE_DO, BY_FOLDER], ids=["as people do", "by folder"])
def test_the_tables_name_what_there_is(table: dict[str, tuple[str, ...]]) -> None:
    named = {*table, *(each for found in table.values() for each in found)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_test_that_runs_the_product_as_people_do_is_chosen_for_some_folder_of_it() -> None:
    named = tuple(each for found in AS_PEOPLE_DO.values() for each in found)
    there = [f"tests/e2e/{path.name}" for path in (ROOT / "tests/e2e").glob("test_*.py")]
    assert [name for name in there if name not in named] == []


def test_here_a_decision_of_the_operator_runs_its_own_tests_and_none_of_the_trainer_s() -> None:
    chosen = Repository(ROOT).broken_by(["operator/src/oarlock_operator/decide/brakes.py"])
    folders = {path.relative_to(ROOT).parts[0] for path in chosen}
    assert "operator" in folders
    assert "trainer" not in folders
