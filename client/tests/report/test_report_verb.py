"""`oarlock report`: the file that it writes, and its exit codes; and the curve's points that the page is drawn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ended import Oarlock
from fake_api import FakeApi
from pages import hung, validation

from oarlock.exit_codes import ExitCode
from oarlock.explain import explain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An output; the working directory is another one."""
    known, at = hung().output, tmp_path / "flux"
    assert known is not None
    history = at / ".oarlock/history"
    history.mkdir(parents=True)
    (history / "story.jsonl").write_text("".join(json.dumps(dict(one)) + "\n" for one in known.history))
    (at / "metrics.jsonl").write_text("".join(json.dumps(dict(one)) + "\n" for one in known.metrics))
    validation(at, 10, uid="")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return at


def test_an_output_alone_becomes_a_page_named_after_it(
    folder: Path, oarlock: Oarlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    ended = oarlock("report", "--path", str(folder))
    assert (ended.code, ended.out, ended.err) == (ExitCode.DONE, "flux.html\n", "")
    page = Path("flux.html").read_text()
    assert "no step for 60.4 s" in page
    assert page.count("data:image/png;base64,") == 2


def test_a_page_within_the_output_links_to_its_pictures(folder: Path, oarlock: Oarlock) -> None:
    assert oarlock("report", "--path", str(folder), "--file", str(folder / "reports/index.html")).code == ExitCode.DONE
    page = (folder / "reports/index.html").read_text()
    assert 'src="../validation/step-10/boat-64x64.png"' in page
    assert "data:image" not in page


def test_a_page_goes_to_standard_output_where_that_is_asked(folder: Path, oarlock: Oarlock) -> None:
    ended = oarlock("report", "--path", str(folder), "--file", "-")
    assert ended.out.startswith("<!doctype html>\n")
    assert not list(Path.cwd().iterdir())


def test_a_job_in_a_cluster_has_a_page(api: FakeApi, oarlock: Oarlock, tmp_path: Path) -> None:
    api.add_job("flux", status={"phase": "Running", "progress": {"step": 7, "totalSteps": 40}})
    ended = oarlock("report", "flux", "--file", str(tmp_path / "out/flux.html"))
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert "default/flux" in (tmp_path / "out/flux.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["report"], ExitCode.USAGE),
        (["report", "--path", "/nowhere"], ExitCode.NOT_FOUND),
        (["report", "--path", "FOLDER", "--file", "/proc/flux.html"], ExitCode.NOT_NOW),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_code(
    arguments: list[str], code: ExitCode, folder: Path, oarlock: Oarlock
) -> None:
    ended = oarlock(*(str(folder) if one == "FOLDER" else one for one in arguments))
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)


def test_times_of_steps_are_reckoned_from_the_first_step_of_each_attempt() -> None:
    times = {point.step: (point.attempt, point.time) for point in explain(hung()).curve}
    assert times[1] == (1, "2026-11-23T10:00:20.000Z")
    assert times[4] == (1, "2026-11-23T10:00:50.000Z")
    assert times[5] == (2, "2026-11-23T10:03:30.000Z"), "the attempt that did it last"
    assert times[20] == (2, "2026-11-23T10:06:00.000Z")
