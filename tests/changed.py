"""Which tests a change can break, for `tests/run --changed`.

What changed is what git tells since a commit. A test file is chosen where it is itself changed, or imports what changed, over
any number of steps. Modules and programs that are only named in a string, because another process runs them, count as
imported. Tests that run the product as people do import none of it: a table says which of them a folder of the product can
break. What is no Python goes by its folder, too, and what stands in no table runs everything: better too much than a test too
few. A file that is gone breaks who still names it.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from oarlock_local.pytest_tiers import Tier

SUITES = (*sorted(path.parent.name for path in Path(__file__).parents[1].glob("*/pyproject.toml")), "tests")
PROGRAMS = {
    "oarlock-trainer": "oarlock_trainer.cli",
    "oarlock-operator": "oarlock_operator.__main__",
    "oarlock-local": "oarlock_local.cli",
}


class Nearness(IntEnum):
    """How near a test file is to a change. Where minutes are counted, the nearest come first."""

    CHANGED = 0
    """It has changed itself."""
    BY_TABLE = 1
    """A table names it for a folder in which something has changed."""
    LEADS_THERE = 2
    """It imports what has changed, over any number of steps; or nobody knows what the change can break."""


_RECOVERY = (
    "tests/e2e/test_recovery.py",
    "tests/e2e/test_rounds.py",
    "tests/e2e/test_other_members.py",
    "tests/e2e/test_lost_nodes.py",
)
AS_PEOPLE_DO = {
    "api/src/oarlock_api/contract/": (*_RECOVERY, "tests/e2e/test_why.py", "tests/e2e/test_custom.py"),
    "api/src/": ("tests/e2e/test_client.py", "tests/e2e/test_training.py", "tests/docs"),
    "operator/src/oarlock_operator/nodes/": ("tests/e2e/test_gpu_faults.py", "tests/e2e/test_lost_nodes.py"),
    "operator/src/oarlock_operator/manifests/": (*_RECOVERY, "tests/e2e/test_custom.py", "tests/e2e/test_training.py"),
    "operator/src/": (
        *_RECOVERY,
        "tests/chaos",
        "tests/e2e/test_gpu_faults.py",
        "tests/e2e/test_slow_rank.py",
        "tests/e2e/test_strange_endings.py",
    ),
    "client/src/oarlock/web/": ("tests/page", "tests/e2e/test_page.py", "tests/e2e/test_live_page.py"),
    "client/src/oarlock/explain/": ("tests/e2e/test_why.py", "tests/e2e/test_slow_rank.py"),
    "client/src/oarlock/facts/": ("tests/e2e/test_why.py", "tests/e2e/test_page.py", "tests/page"),
    "client/src/": ("tests/e2e/test_client.py", "tests/e2e/test_why.py"),
    "trainer/src/oarlock_trainer/agent/": (
        *_RECOVERY,
        "tests/e2e/test_gpu_faults.py",
        "tests/e2e/test_slow_rank.py",
        "tests/e2e/test_why.py",
        "tests/e2e/test_custom.py",
    ),
    "trainer/src/oarlock_trainer/ranks/": (*_RECOVERY, "tests/e2e/test_training.py"),
    "trainer/src/oarlock_trainer/loop/": (*_RECOVERY, "tests/e2e/test_training.py", "tests/e2e/test_slow_rank.py"),
    "trainer/src/oarlock_trainer/validation/": ("tests/e2e/test_live_page.py", "tests/e2e/test_page.py"),
    "trainer/src/oarlock_trainer/health/": ("tests/e2e/test_gpu_faults.py", "tests/e2e/test_why.py"),
    "trainer/src/oarlock_trainer/models/": ("tests/e2e/test_families.py", "tests/docs"),
    "trainer/src/oarlock_trainer/checkpoint/": (*_RECOVERY, "tests/soak"),
    "trainer/src/oarlock_trainer/storage/": ("tests/e2e/test_data.py",),
    "trainer/src/oarlock_trainer/preprocess/": ("tests/e2e/test_data.py",),
    "trainer/src/": ("tests/e2e/test_training.py", "tests/e2e/test_custom.py", "tests/e2e/test_data.py"),
    "importer/src/": ("tests/e2e/test_import.py", "tests/docs"),
    "local/src/": ("tests/e2e/test_demo.py", "tests/e2e/test_training.py", "tests/e2e/test_gpu_faults.py"),
    "local/go/": ("tests/e2e/test_training.py", "operator/tests/api_server"),
}
"""Tests that run the product as people do, by the folder of it that can break them; the first row that fits counts."""
BY_FOLDER = {
    "charts/": ("tests/chart", "tests/e2e/test_page.py", "tests/releasing", "tests/test_guard.py"),
    "deploy/": ("tests/chart", "tests/releasing"),
    "release/": ("tests/releasing",),
    "build.txt": ("tests/releasing",),
    ".devcontainer/": ("tests/releasing",),
    ".pre-commit-config.yaml": ("tests/releasing",),
    "crds/": ("tests/chart", "tests/e2e/test_client.py", "api/tests"),
    "docs/": ("tests/docs", "tests/chart", "tests/releasing", "tests/test_guard.py"),
    "examples/": ("tests/examples", "tests/docs", "api/tests"),
    ".github/": ("tests/releasing", "tests/test_guard.py"),
    ".ci/": ("tests/test_tiers.py",),
    "Makefile": ("tests/releasing", "tests/docs", "tests/test_guard.py"),
    "Dockerfile.operator": ("tests/images", "tests/releasing", "tests/test_guard.py"),
    "Dockerfile.trainer": ("tests/images", "tests/releasing", "tests/test_guard.py"),
    ".dockerignore": ("tests/images",),
    ".gitignore": ("tests/images", "tests/test_guard.py"),
    "LICENSE": ("tests/releasing",),
    "mkdocs.yml": ("tests/docs",),
    "uv.txt": ("tests/images", "tests/releasing"),
    "tests/e2e/paced/": ("tests/e2e",),
    "tests/gangs/": ("tests/gangs",),
    "tests/images/": ("tests/images",),
    "tests/run": ("tests/test_tiers.py",),
    "tests/repeat": ("tests/test_tiers.py",),
    "tests/tiers/": ("tests/test_tiers.py",),
    "README.md": ("tests/docs", "tests/releasing"),
    "CONTRIBUTING.md": ("tests/docs",),
    "SECURITY.md": ("tests/docs",),
    "CHANGELOG.md": ("tests/test_guard.py",),
}
CLUSTERS = "oarlock_local.pytest_plugin"
"""Fixtures that pytest finds by itself."""
_DEEP = re.compile(r"\bmark\.(?:deep|nodes)\b|\blocal_cluster\b|\bquick_first\(")
"""What a file with tests of the deep tier says."""
_OF_A_CLUSTER = re.compile(r"\b(?:local_cluster|control_plane)\b")
_NAMED = re.compile(
    r"\boarlock_\w+(?:\.\w+)*|\boarlock(?!\.(?:dev|local)\b)(?:\.\w+)+|\boarlock-(?:trainer|operator|local)\b"
)

_PROGRAM = re.compile(r"^(?:\w+/)*(\w+)\.py$")
"""A program that tests run by its path."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a conftest: the names that it makes, and the words that it is written with."""

    node: ast.stmt
    defines: tuple[str, ...]
    words: frozenset[str]
    is_autouse: bool

    @classmethod
    def of(cls, node: ast.stmt) -> Statement:
        """Read one."""
        text = ast.unparse(node)
        return cls(node, tuple(_defines(node)), frozenset(re.findall(r"\w+", text)), "autouse=True" in text)


class Repository:
    """The Python files of a checkout and what each of them leads to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules = {
            _dotted(path.relative_to(source)): path
            for suite in SUITES
            for source in [root / suite / "src"]
            for path in source.rglob("*.py")
        }
        self._modules |= {_dotted(path.relative_to(root)): path for path in (root / "tests").rglob("*.py")}
        self._beside = {
            suite: {
                name: path for path in folder.rglob("*.py") for name in (_dotted(path.relative_to(folder)), path.stem)
            }
            for suite in SUITES
            for folder in [root / suite / "tests"]
        }
        """Modules that the tests of one suite share: by their path below its tests, and by the name alone that a conftest's
        folder on sys.path gives them."""
        self._closures: dict[Path, frozenset[Path]] = {}
        self._direct: dict[Path, frozenset[Path]] = {}
        self._named: dict[Path, set[str]] = {}
        self._statements: dict[Path, list[Statement]] = {}

    def tests(self) -> list[Path]:
        """Every test file."""
        folders = (self.root / suite / ("" if suite == "tests" else "tests") for suite in SUITES)
        return sorted(path for folder in folders for path in folder.rglob("test_*.py"))

    def needs(self, test: Path) -> frozenset[Path]:
        """Every Python file that the test file leads to, and itself."""
        if test not in self._closures:
            seen, open_ = {test}, [test]
            while open_:
                for path in self._leads_to(open_.pop()):
                    if path not in seen:
                        seen.add(path)
                        open_.append(path)
            # Of a conftest only what the test comes to leads further; a change of the file itself may be anywhere in it.
            self._closures[test] = frozenset(seen.union(self._conftests(test)))
        return self._closures[test]

    def broken_by(self, changed: Iterable[str]) -> dict[Path, Nearness]:
        """The test files that changes of these files, given by their paths below the root, can break."""
        chosen: dict[Path, Nearness] = {}
        tests = self.tests()
        for name in changed:
            path = self.root / name
            folders = _of_first(BY_FOLDER, name) or _of_first(AS_PEOPLE_DO, name)
            suite = name.split("/", maxsplit=1)[0]
            if path.suffix != ".py" and suite in SUITES and suite != "tests":
                folders = (*folders, f"{suite}/tests")
            for test in tests:
                near = self._nearness(test, path, folders)
                if near is not None:
                    chosen[test] = min(near, chosen.get(test, near))
        return chosen

    def _nearness(self, test: Path, path: Path, folders: tuple[str, ...]) -> Nearness | None:
        """How near a test is to a file that has changed; None where it does not come to it."""
        if test == path:
            return Nearness.CHANGED
        if self._below(test, folders):
            return Nearness.BY_TABLE
        if path.suffix != ".py":
            leads_there = not folders
        elif path.exists():
            leads_there = path in self.needs(test)
        else:
            leads_there = any(self._names_it(each, path) for each in self.needs(test))
        return Nearness.LEADS_THERE if leads_there else None

    def is_deep(self, test: Path) -> bool:
        """Whether a test file has tests of the deep tier, as far as it and what it comes to of its conftests say."""
        says = [test.read_text(encoding="utf-8")]
        says += [ast.unparse(each) for conftest in self._conftests(test) for each in self._used(conftest, test)]
        return any(map(_DEEP.search, says))

    def _names_it(self, by: Path, gone: Path) -> bool:
        """Whether a file names a module that is not there any more."""
        parts = gone.relative_to(self.root).parts
        start = parts.index("src") + 1 if "src" in parts else 0 if parts[0] == "tests" else min(2, len(parts) - 1)
        name = _dotted(Path(*parts[start:]))
        names = {name} if "src" in parts or parts[0] == "tests" else {name, gone.stem}
        return any(each == one or each.startswith(f"{one}.") for each in self._names_of(by) for one in names)

    def _names_of(self, path: Path) -> set[str]:
        if path not in self._named:
            self._named[path] = _names(path, ast.parse(path.read_text(encoding="utf-8")).body)
        return self._named[path]

    def _below(self, test: Path, folders: tuple[str, ...]) -> bool:
        name = str(test.relative_to(self.root))
        return any(name == folder or name.startswith(f"{folder}/") for folder in folders)

    def _leads_to(self, path: Path) -> frozenset[Path]:
        if path not in self._direct:
            found = {self._find(name, path) for name in self._names_of(path)}
            for conftest in self._conftests(path):
                found |= {self._find(name, conftest) for name in _names(conftest, self._used(conftest, path))}
            if path.name.startswith("test_") and _OF_A_CLUSTER.search(path.read_text(encoding="utf-8")):
                found.add(self._find(CLUSTERS, path))
            self._direct[path] = frozenset().union(*found)
        return self._direct[path]

    def _find(self, name: str, by: Path) -> frozenset[Path]:
        """The files of a module and the packages above it, as the file `by` sees them."""
        parts = name.split(".")
        starts = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        beside = {} if "src" in by.parts else self._beside.get(by.relative_to(self.root).parts[0], {})
        runs = [f"{name}.__main__"] if "src" not in by.parts else []
        return frozenset(
            modules[each] for modules in (self._modules, beside) for each in (*starts, *runs) if each in modules
        )

    def _used(self, conftest: Path, test: Path) -> list[ast.stmt]:
        """The statements of a conftest that a test comes to: fixtures that it names, and what these name in turn."""
        if conftest not in self._statements:
            body = ast.parse(conftest.read_text(encoding="utf-8")).body
            self._statements[conftest] = [Statement.of(node) for node in body]
        statements = self._statements[conftest]
        defined = {name: statement for statement in statements for name in statement.defines}
        open_ = set(re.findall(r"\w+", test.read_text(encoding="utf-8")))
        open_ |= {name for name, statement in defined.items() if statement.is_autouse}
        chosen: dict[str, ast.stmt] = {}
        while open_:
            name = open_.pop()
            if name in defined and name not in chosen:
                chosen[name] = defined[name].node
                open_ |= defined[name].words
        return list(chosen.values())

    def _conftests(self, path: Path) -> list[Path]:
        if not path.name.startswith("test_"):
            return []
        return [folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").exists()]


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _names(path: Path, body: list[ast.stmt]) -> set[str]:
    """Modules that statements of a file import, or name in a string, at whatever depth.

    In the product a sentence may speak of a program or a package: there only a whole string that is a module's name counts.
    """
    found: set[str] = set()
    for node in (each for statement in body for each in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(part for part in (*_package(path, node.level), node.module) if part)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "src" not in path.parts:
                found.update(PROGRAMS.get(name, name) for name in _NAMED.findall(node.value))
                found.update(_PROGRAM.findall(node.value))
            elif _NAMED.fullmatch(node.value) and "." in node.value:
                found.add(node.value)
    return found


def _package(path: Path, level: int) -> tuple[str, ...]:
    """The package that a relative import starts from; none for an absolute one."""
    if not level:
        return ()
    parts = path.parents[level - 1].parts
    return parts[parts.index("src") + 1 :] if "src" in parts else parts[parts.index("tests") :]


def _defines(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module makes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


class UnknownCommitError(ValueError):
    """Git knows no such commit."""


def changed_since(root: Path, commit: str) -> list[str]:
    """Files that differ from a commit, and those that git does not know yet. Raises UnknownCommitError."""
    known = ["git", "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"]
    if subprocess.run(known, cwd=root, capture_output=True, check=False).returncode:
        raise UnknownCommitError(commit)
    asked = (["diff", "--no-renames", "--name-only", commit, "--"], ["ls-files", "--others", "--exclude-standard"])
    told = [
        subprocess.run(["git", *each], cwd=root, check=True, capture_output=True, text=True).stdout for each in asked
    ]
    return sorted({line for text in told for line in text.splitlines()})


def _of_first(table: dict[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """What the first row of a table says whose folder or file the name begins with."""
    return next((found for start, found in table.items() if name.startswith(start)), ())


def chosen_since(root: Path, commit: str, tier: Tier) -> dict[str, Nearness]:
    """The test files that a change since a commit can break and that have tests of the tier, by their paths below the root.

    Raises UnknownCommitError.
    """
    repository = Repository(root)
    found = repository.broken_by(changed_since(root, commit))
    return {
        path.relative_to(root).as_posix(): found[path]
        for path in sorted(found)
        if tier is not Tier.DEEP or repository.is_deep(path)
    }
