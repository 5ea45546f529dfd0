"""Outputs that are mounted into the page's pod: whose they are shown to, and that nothing else is read through them."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient
from urllib3 import PoolManager

from oarlock.facts.model import Output
from oarlock.web import budget, outputs
from oarlock.web.__main__ import main
from oarlock.web.access.token import TokenAuthenticator
from oarlock.web.app import build
from oarlock.web.budget import Budget, Share
from oarlock.web.guards import Csrf
from oarlock.web.mounts import Mount
from oarlock.web.settings import Settings
from oarlock.web.storage import Storage
from oarlock_api.contract.beneath import Beneath
from oarlock_api.contract.history import HISTORY, StoryLine
from oarlock_local import patience

HOST = "page.example.com"
EXPORT = {"server": "nfs.example.com", "path": "/exports/team"}
OUTPUT = {"nfs": {**EXPORT, "path": "/exports/team/runs"}, "directory": "flux"}
JOB = "/jobs/team/flux"
PICTURE = f"{JOB}/pictures/step-200/boat.png"
VIEWS = (JOB, f"{JOB}/curve", f"{JOB}/logs", f"{JOB}/pictures", PICTURE)
SECRET, PNG = "HERS-ALONE", b"\x89PNG\r\n\x1a\n"
KEPT = f"{HISTORY}/logs/1-uidflu/0.log.gz"


def made(output: Path, word: str, uid: str = "uid-flux") -> None:
    """An output of which every file has that word: in the story, the figures' count, a log's line, a picture."""
    fault = StoryLine(
        time="2026-01-01T00:30:00Z", type="Fault", attempt=1, job=uid, rank=1, node=word, reason="Hang", message=word
    )
    files = {
        ".oarlock/owner": json.dumps({"jobUid": uid, "attempt": 1}).encode(),
        f"{HISTORY}/story.jsonl": f"{fault.to_json()}\n".encode(),
        KEPT: gzip.compress(f"2026-01-01T00:00:01.000Z out {word}\n".encode()),
        "metrics.jsonl": b"".join(
            json.dumps({"step": step, "loss": 1 / step, "attempt": 1}).encode() + b"\n"
            for step in range(1, 78 if word == SECRET else 34)
        ),
        "validation/index.json": json.dumps(
            {"pictures": [{"step": 200, "name": word, "file": "step-200/boat.png", "jobUid": uid}]}
        ).encode(),
        "validation/step-200/boat.png": PNG + word.encode(),
    }
    for name, content in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_bytes(content)


def ended(api: FakeApi, namespace: str, output: dict[str, Any]) -> dict[str, Any]:
    status = {"attempt": 1, "phase": "Succeeded", "completionTime": "2026-01-01T01:00:00Z"}
    return api.add_job("flux", namespace, status=status, spec={"nodes": 2, "gpusPerNode": 8, "output": output})


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    """The export of `team`, with the output of its job; beside it, that of somebody else."""
    made(tmp_path / "mounted/runs/flux", "ours")
    made(tmp_path / "hers", SECRET)
    return Mount(folder=tmp_path / "mounted", namespace="team", **EXPORT)


@pytest.fixture
def page(api: FakeApi, mount: Mount) -> Iterator[TestClient]:
    """The page of a cluster, as the browser of anne, who may read the namespace `team`."""
    api.tokens |= {"anne": {"team"}, "bert": {"other"}}
    ended(api, "team", OUTPUT)
    csrf = Csrf()
    who = TokenAuthenticator(server=api.address, pool=PoolManager(), csrf=csrf)
    app = build(Settings(hosts=frozenset({HOST}), outputs=(mount,)), who, csrf=csrf)
    with TestClient(app, base_url=f"https://{HOST}", headers=bearer("anne"), follow_redirects=False) as page:
        yield page


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def seen(page: TestClient) -> list[bytes]:
    return [page.get(view).content for view in VIEWS]


def test_an_ended_job_has_all_that_its_output_has(page: TestClient) -> None:
    job, curve, logs, pictures, picture = seen(page)
    assert b"Hang" in job
    assert b"ours" in job
    assert b"33 steps, the newest is 33" in curve
    assert b"ours" in logs
    assert b"step-200/thumbs/boat.jpg" in pictures
    assert picture == PNG + b"ours"


def test_an_output_is_read_once_for_each_change_and_is_kept_within_the_budget(
    page: TestClient, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    room: list[Budget] = []

    def counted(self: Budget, key: object, value: object, size: int) -> None:
        room.append(self)
        reads.append(size)
        keep(self, key, value, size)

    keep = Budget.keep
    monkeypatch.setattr(Budget, "keep", counted)
    for _ in range(2):
        assert "33 steps" in page.get(f"{JOB}/curve").text
    assert len(reads) == 1
    assert room[0].used == reads[0] > 0
    with (mount.folder / "runs/flux/metrics.jsonl").open("a") as figures:
        figures.write(json.dumps({"step": 34, "loss": 1.0, "attempt": 1}) + "\n")
    assert "34 steps" in page.get(f"{JOB}/curve").text
    assert room[0].used == reads[-1]


def test_an_output_that_is_read_slowly_is_read_once_within_the_budget_and_shown_when_it_is_there(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answers, room = threading.Semaphore(0), threading.Event(), set[Budget]()
    read, share = outputs._read, Budget.share

    def slowly(place: Beneath) -> Output:
        begun.release()
        answers.wait(patience.SECONDS)
        return read(place)

    def seen_share(self: Budget, person: str = "") -> Share:
        room.add(self)
        return share(self, person)

    monkeypatch.setattr(outputs, "_read", slowly)
    monkeypatch.setattr(Budget, "share", seen_share)
    with monkeypatch.context() as patch:
        patch.setattr(Storage.__init__, "__kwdefaults__", {"seconds": 0.4})
        for view in (f"{JOB}/curve", JOB):
            assert "does not answer" in page.get(view).text
    assert [one.used for one in room] == [outputs.READ_BYTES]
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("reads "):
            thread.join(patience.SECONDS)
    assert "33 steps" in page.get(f"{JOB}/curve").text
    assert begun.acquire(blocking=False)
    assert not begun.acquire(blocking=False), "read once"


def test_where_there_is_no_room_for_an_output_all_else_is_shown(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(outputs, "READ_BYTES", budget.MOST_BYTES + 1)
    for view in (JOB, f"{JOB}/curve"):
        answer = page.get(view)
        assert answer.status_code == 200
        assert "of memory, and the page&#x27;s server has" in answer.text
    monkeypatch.undo()
    assert "33 steps" in page.get(f"{JOB}/curve").text, "and none is taken by who was refused"


def test_who_may_not_read_the_job_sees_nothing_of_its_output(api: FakeApi, page: TestClient) -> None:
    page.headers |= bearer("bert")
    for view, content in zip(VIEWS, seen(page), strict=True):
        assert b"ours" not in content, view
        assert b"33 steps" not in content, view
    # ... nor where a job of his own namespace names that very folder.
    ended(api, "other", OUTPUT)
    for view in VIEWS:
        content = page.get(view.replace("/team/", "/other/")).content
        assert b"thumbs/boat" not in content
        assert b"ours" not in content
        assert b"33 steps" not in content


@pytest.mark.parametrize(
    ("denied", "shown", "hidden"),
    [
        ("get pods/log", [f"{JOB}/pictures"], [f"{JOB}/logs"]),
        ("create pods/portforward", [f"{JOB}/logs"], [f"{JOB}/pictures", PICTURE]),
    ],
)
def test_logs_and_pictures_of_a_job_that_has_ended_take_the_right_that_they_took_while_it_ran(
    api: FakeApi, page: TestClient, denied: str, shown: list[str], hidden: list[str]
) -> None:
    api.denied.add(denied)
    verb, _, resource = denied.partition(" ")
    for view in hidden:
        text = page.get(view).text
        assert f"may {verb} <code>{resource}</code> in team" in text
        assert "ours" not in text
        assert "thumbs/boat" not in text
    assert "ours" in page.get(shown[0]).text
    assert b"33 steps" in page.get(f"{JOB}/curve").content
    assert {path for method, path, _ in api.asked if method == "POST" and "access" in path} == {
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    }


def test_a_right_is_asked_again_after_a_minute(api: FakeApi, page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ours" in page.get(f"{JOB}/logs").text
    api.denied.add("get pods/log")
    assert "ours" in page.get(f"{JOB}/logs").text
    monkeypatch.setattr("oarlock.web.rights.time.monotonic", lambda: 1e9)
    assert "ours" not in page.get(f"{JOB}/logs").text


@pytest.mark.parametrize(
    "linked",
    [
        "runs", "runs/flux", "runs/flux/.oarlock", "runs/flux/.oarlock/owner", "runs/flux/.oarlock/history",
        "runs/flux/.oarlock/history/story.jsonl", "runs/flux/.oarlock/history/logs",
        "runs/flux/.oarlock/history/logs/1-uidflu", f"runs/flux/{KEPT}", "runs/flux/metrics.jsonl", "runs/flux/validation",
        "runs/flux/validation/index.json", "runs/flux/validation/step-200", "runs/flux/validation/step-200/boat.png",
    ],
)  # fmt: skip
def test_a_link_anywhere_in_an_output_leads_nobody_to_what_another_team_has(
    page: TestClient, mount: Mount, tmp_path: Path, linked: str
) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "hers").rename(tmp_path / "team/flux")
    place = mount.folder / linked
    hers = tmp_path / "team" / Path(linked).relative_to("runs")
    assert hers.exists()
    place.rename(tmp_path / "moved")
    place.symlink_to(hers)
    for view, content in zip(VIEWS, seen(page), strict=True):
        assert SECRET.encode() not in content, view
        assert b"77 steps" not in content, view


@pytest.mark.parametrize(
    "name", [".oarlock/owner", f"{HISTORY}/story.jsonl", KEPT, "metrics.jsonl", "validation/index.json"]
)
def test_a_fifo_in_an_output_keeps_nobody_waiting(page: TestClient, mount: Mount, name: str) -> None:
    file = mount.folder / "runs/flux" / name
    file.unlink()
    os.mkfifo(file)
    assert all(b"does not answer" not in content for content in seen(page))
    assert page.get(JOB).status_code == 200


def test_an_output_that_hangs_is_said_and_all_else_is_shown(
    page: TestClient, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, real = threading.Event(), Beneath.open

    def hanging(place: Beneath, flags: int) -> int:
        answers.wait(patience.SECONDS)
        return real(place, flags)

    monkeypatch.setattr(Beneath, "open", hanging)
    monkeypatch.setattr(Storage.__init__, "__kwdefaults__", {"seconds": 0.05})
    assert mount.folder.is_dir()
    for view, content in zip(VIEWS, seen(page), strict=True):
        assert b"nfs.example.com:/exports/team does not answer" in content, view
    assert page.get("/jobs/team").status_code == 200
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("reads "):
            thread.join(patience.SECONDS)
    assert page.get(PICTURE).content == PNG + b"ours"


@pytest.mark.parametrize(
    ("refused_at", "view"), [("open", f"{JOB}/curve"), ("open", JOB), ("is_dir", f"{JOB}/logs?attempt=1")]
)
def test_files_that_the_pages_user_may_not_read_are_said(
    page: TestClient, monkeypatch: pytest.MonkeyPatch, refused_at: str, view: str
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Beneath, refused_at, refused)
    assert "nfs.example.com:/exports/team cannot be read here: Permission denied" in page.get(view).text


def nfs(path: str, server: str = "nfs.example.com") -> dict[str, Any]:
    return {"nfs": {"server": server, "path": path}}


def claim(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


@pytest.mark.parametrize(
    ("namespace", "output", "below"),
    [
        ("team", nfs("/exports/team"), "flux"),
        ("team", nfs("/exports/team/"), "flux"),
        ("team", nfs("/exports/team/a//b") | {"directory": "run"}, "a/b/run"),
        ("team", nfs("/exports/team-b"), None),
        ("team", nfs("/exports"), None),
        ("team", nfs("/exports/team/../hers"), None),
        ("team", nfs("/exports/team/."), None),
        ("team", nfs("exports/team"), None),
        ("team", nfs("/exports/team", server="other"), None),
        ("other", nfs("/exports/team"), None),
        ("team", nfs("/exports/team") | {"directory": ".."}, None),
        ("team", nfs("/exports/team") | {"directory": "../hers"}, None),
        ("team", claim("data"), None),
        ("team", {}, None),
        ("team", {"nfs": 7}, None),
    ],
)
def test_an_export_is_for_the_jobs_of_its_namespace_that_write_to_it_or_below_it(
    namespace: str, output: dict[str, Any], below: str | None
) -> None:
    mount = Mount(folder=Path("/outputs/0"), namespace="team", **EXPORT)
    job = {"metadata": {"name": "flux", "namespace": namespace}, "spec": {"output": output}}
    assert [str(place) for place in mount.places(job)] == ([f"/outputs/0/{below}"] if below else [])


def test_a_claim_is_for_the_jobs_of_its_namespace_that_write_to_it() -> None:
    mount = Mount(folder=Path("/outputs/0"), namespace="team", claim="data")
    for namespace, output, there in (
        ("team", claim("data"), True),
        ("team", claim("other"), False),
        ("other", claim("data"), False),
        ("team", nfs("/"), False),
    ):
        job = {"metadata": {"name": "flux", "namespace": namespace}, "spec": {"output": output}}
        assert bool(mount.places(job)) is there
    assert mount.named(Beneath(mount.folder, ("flux",))) == "data:flux"


@pytest.mark.parametrize(
    "given",
    ["{", "7", "{}", '{"namespace": "a", "folder": "/x"}', '{"folder": "/x", "claimName": "c", "namespace": ""}'],
)
def test_an_entry_that_is_none_ends_the_server_at_its_start(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--output={given}"])
    assert "--output" in capsys.readouterr().err
