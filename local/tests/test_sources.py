"""Go modules as sources to read: what is pinned, or nothing."""

import shutil
from dataclasses import replace

import pytest

from oarlock_local.binaries import COSCHEDULING as COSCHEDULING_PROGRAM
from oarlock_local.binaries import KUEUE as KUEUE_PROGRAM
from oarlock_local.binaries import VOLCANO_CONTROLLERS, VOLCANO_SCHEDULER, Part, modules_folder
from oarlock_local.errors import LocalError
from oarlock_local.sources import COSCHEDULING, KUEUE, VOLCANO, Source, SourceMissing

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
SMALL = Source("golang.org/x/sync", "v0.22.0", "h1:SZjpbeLmrCk4xhRSZFNZW5gFUeCeFgjekvI/+gfScek=")


@pytest.mark.parametrize(
    ("source", "program"),
    [
        (COSCHEDULING, COSCHEDULING_PROGRAM),
        (KUEUE, KUEUE_PROGRAM),
        (VOLCANO, VOLCANO_SCHEDULER),
        (VOLCANO, VOLCANO_CONTROLLERS),
    ],
    ids=lambda each: getattr(each, "binary", None),
)
def test_a_gang_systems_definitions_are_those_of_the_program_that_is_built(source: Source, program: Part) -> None:
    pinned = (modules_folder() / program.module / "go.sum").read_text()
    assert f"{source.module} {source.version} {source.checksum}\n" in pinned


@needs_go
def test_a_module_that_is_not_what_was_pinned_is_refused() -> None:
    try:
        assert (SMALL.fetch() / "errgroup").is_dir()
    except SourceMissing as reason:
        pytest.skip(str(reason))
    with pytest.raises(LocalError, match="was pinned") as refusal:
        replace(SMALL, checksum="h1:another").fetch()
    assert not isinstance(refusal.value, SourceMissing), "tests would be skipped for it"


def test_without_go_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SourceMissing, match="install Go"):
        SMALL.fetch()
