"""Pictures on the page: those of a step, two steps side by side, one alone; read as the caller, and kept for him alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_agent import agent
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock.errors import ForbiddenError, NotFoundError, NotNowError
from oarlock.leader import Admit
from oarlock.report.pictures import Picture
from oarlock.web import albums, budget, sent
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.albums import Album, Albums, Folder
from oarlock.web.app import build
from oarlock.web.budget import Budget, Share
from oarlock.web.busy import BusyError
from oarlock.web.drawn.pictures import Choice, pictures
from oarlock.web.mounts import Mount
from oarlock.web.settings import Settings
from oarlock_api.contract.layout import OWNER, Owner

EVIL = "<script>alert(1)</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 2000
JPEG = b"\xff\xd8\xff" + b"y" * 1000
PAGE = "/jobs/default/flux/pictures"


def entry(step: int, name: str, uid: str = "uid-flux", **more: Any) -> dict[str, Any]:
    about = {"width": 1024, "height": 512, "seed": 42, "prompt": f"a {name}"}
    return {"step": step, "name": name, "file": f"step-{step}/{name}-1024x512.png", "jobUid": uid, **about, **more}


def index(*entries: dict[str, Any]) -> str:
    return json.dumps({"pictures": list(entries)})


STEPS = index(*(entry(step, name) for step in (200, 400, 1000) for name in ("boat", "cat")), entry(1000, "late"))


@pytest.fixture
def pod(api: FakeApi) -> Iterator[dict[str, bytes]]:
    """What the leader's agent of a job that runs has at which path."""
    api.add_job("flux", status={"attempt": 1, "phase": "Running"})
    api.add_pod("flux", 1, 0, None)
    with agent(api, "flux-1-0") as paths:
        paths["/validation/index.json"] = STEPS.encode()
        yield paths


def sources(text: str) -> list[str]:
    return re.findall(r'<img src="([^"]+)"', text)


def links(text: str, key: str) -> list[str]:
    found = re.findall(rf'<a href="([^"]+)" aria-keyshortcuts="{key}"', text)
    return [one.replace("&amp;", "&") for one in found]


@pytest.mark.usefixtures("pod")
def test_the_newest_step_is_shown_and_an_address_names_any_other(page: TestClient) -> None:
    text = page.get(PAGE).text
    assert sources(text) == [
        f"{PAGE}/step-1000/thumbs/{name}-1024x512.jpg" for name in ("boat", "cat", "late")
    ]  # fmt: skip
    assert "3 steps have pictures" in text
    assert 'min="200" max="1000" step="200" value="1000"' in text
    assert "a boat" in text
    for step, shown in (("400", 400), ("999", 400), ("1", 200), ("99999", 1000), ("x", 1000)):
        assert f"/step-{shown}/" in sources(page.get(PAGE, params={"step": step}).text)[0]
    assert links(page.get(PAGE, params={"step": "400"}).text, "ArrowLeft") == [f"{PAGE}?step=200"]
    assert links(text, "ArrowRight") == []


@pytest.mark.usefixtures("pod")
def test_a_jobs_page_leads_to_its_logs_and_its_pictures(page: TestClient) -> None:
    text = page.get("/jobs/default/flux").text
    for address in (PAGE, "/jobs/default/flux/logs"):
        assert f'<a href="{address}">' in text
        assert page.get(address).status_code == 200


@pytest.mark.usefixtures("pod")
def test_two_steps_stand_side_by_side_and_what_one_lacks_is_said(page: TestClient) -> None:
    text = page.get(PAGE, params={"step": "1000", "beside": "200"}).text
    assert [one.removeprefix(f"{PAGE}/") for one in sources(text)] == [
        "step-1000/thumbs/boat-1024x512.jpg", "step-200/thumbs/boat-1024x512.jpg",
        "step-1000/thumbs/cat-1024x512.jpg", "step-200/thumbs/cat-1024x512.jpg",
        "step-1000/thumbs/late-1024x512.jpg",
    ]  # fmt: skip
    assert "Step 200 has no such picture" in text


@pytest.mark.usefixtures("pod")
def test_one_picture_alone_is_the_whole_one_and_keys_lead_through_steps_and_names(page: TestClient) -> None:
    text = page.get(PAGE, params={"step": "400", "show": "cat-1024x512.png"}).text
    assert sources(text) == [f"{PAGE}/step-400/cat-1024x512.png"]
    assert 'width="1024" height="512"' in text
    assert links(text, "ArrowRight") == [f"{PAGE}?step=1000&show=cat-1024x512.png"]
    assert links(text, "ArrowUp") == [f"{PAGE}?step=400&show=boat-1024x512.png"]
    assert links(text, "Escape") == [f"{PAGE}?step=400"]
    assert len(sources(page.get(PAGE, params={"step": "400", "show": "gone.png"}).text)) == 2, "then all of the step"


def test_a_picture_is_sent_as_what_it_is_and_to_nobodys_shared_cache(pod: dict[str, bytes], page: TestClient) -> None:
    pod["/validation/step-200/boat-1024x512.png"] = PNG
    pod["/validation/step-200/thumbs/boat-1024x512.jpg"] = JPEG
    pod["/validation/step-200/page.png"] = EVIL.encode()
    whole = page.get(f"{PAGE}/step-200/boat-1024x512.png")
    assert (whole.content, whole.headers["content-type"]) == (PNG, "image/png")
    assert whole.headers["cache-control"] == "private, max-age=60"
    assert whole.headers["x-content-type-options"] == "nosniff"
    small = page.get(f"{PAGE}/step-200/thumbs/boat-1024x512.jpg")
    assert (small.content, small.headers["content-type"]) == (JPEG, "image/jpeg")
    for name in ("step-200/page.png", "step-200/gone.png", "index.json", "..%2f..%2ffigures", "step-200/%2e%2e/x.png"):
        assert page.get(f"{PAGE}/{name}").status_code == 404


def test_an_output_of_an_earlier_release_has_no_thumbnails_and_its_pictures_are_shown(
    pod: dict[str, bytes], page: TestClient
) -> None:
    pod["/validation/step-200/boat-1024x512.png"] = PNG
    assert page.get(f"{PAGE}/step-200/thumbs/boat-1024x512.jpg").content == PNG


def test_nothing_that_an_index_says_becomes_markup_and_no_name_leads_elsewhere(
    pod: dict[str, bytes], page: TestClient
) -> None:
    wrong = (
        entry(2, "x", file="../../figures"),
        entry(2, "y", file="https://elsewhere/x.png"),
        entry(2, "z", uid="other"),
    )
    pod["/validation/index.json"] = index(entry(2, EVIL, file="step-2/a.png", prompt=EVIL), *wrong).encode()
    text = page.get(PAGE, params={"show": EVIL}).text
    assert EVIL not in text
    assert sources(text) == [f"{PAGE}/step-2/thumbs/a.jpg"]


def test_who_may_not_forward_ports_is_told_which_right_it_takes(
    api: FakeApi, pod: dict[str, bytes], page: TestClient
) -> None:
    assert pod
    api.refusals["/api/v1/namespaces/default/pods/flux-1-0/portforward"] = (403, "pods/portforward is forbidden")
    text = page.get(PAGE).text
    assert "pods/portforward is forbidden" in text
    assert "<code>pods/portforward</code>" in text
    assert page.get(f"{PAGE}/step-200/boat-1024x512.png").status_code == 403


def test_a_job_without_pictures_says_how_it_gets_some(pod: dict[str, bytes], page: TestClient) -> None:
    del pod["/validation/index.json"]
    assert "<code>spec.training.validation</code>" in page.get(PAGE).text


def test_an_ended_job_says_where_its_pictures_are_unless_its_output_is_mounted_here(
    api: FakeApi, page: TestClient, access: LinkAuthenticator, tmp_path: Path
) -> None:
    api.add_job("flux", status={"attempt": 1, "phase": "Succeeded"})
    assert "lies in its output" in page.get(PAGE).text
    folder = tmp_path / "flux/validation/step-200"
    folder.mkdir(parents=True)
    (folder.parent / "index.json").write_text(STEPS)
    (folder / "boat-1024x512.png").write_bytes(PNG)
    (tmp_path / "flux" / OWNER).parent.mkdir()
    (tmp_path / "flux" / OWNER).write_text(Owner(job_uid="uid-flux", attempt=1).to_json())
    with TestClient(
        build(Settings(outputs=(Mount(folder=tmp_path),)), access), base_url="http://127.0.0.1:8270"
    ) as mounted:
        mounted.get(access.link)
        assert len(sources(mounted.get(PAGE).text)) == 3
        assert mounted.get(f"{PAGE}/step-200/boat-1024x512.png").content == PNG


def test_a_folder_gives_pictures_alone_and_none_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "validation/step-2").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.png").write_bytes(PNG)
    (tmp_path / "validation/step-4").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "validation/step-2/link.png").symlink_to(tmp_path / "elsewhere/x.png")
    (tmp_path / "validation/step-2/page.png").write_text(EVIL)
    assert Folder(tmp_path).pictures(print) == ""
    for name in ("step-4/x.png", "step-2/link.png", "step-2/page.png", "step-2/gone.png", "../elsewhere/x.png"):
        with pytest.raises(NotFoundError):
            Folder(tmp_path).picture(name, print)


class Source:
    """Pictures that are counted, and may be refused."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.size = 1000

    def pictures(self, admit: Admit) -> str:
        self._answer("index")
        admit(len(STEPS))
        return STEPS

    def picture(self, file: str, admit: Admit) -> tuple[str, bytes]:
        self._answer(file)
        admit(self.size)
        return "image/jpeg", b"z" * self.size

    def _answer(self, name: str) -> None:
        self.asked.append(name)
        if self.error:
            raise self.error


def allowed() -> None:
    """The caller still has the right."""


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def album(source: Source) -> Album:
    return Album(lambda: source, "uid-flux", Budget())


def test_an_index_and_thumbnails_are_asked_for_once_and_whole_pictures_each_time(source: Source, album: Album) -> None:
    for _ in range(2):
        assert len(album.shown().steps) == 3
        album.picture("step-200/thumbs/boat.jpg", allowed)
        album.picture("step-200/boat.png", allowed)
    assert source.asked == ["index", "step-200/thumbs/boat.jpg", "step-200/boat.png", "step-200/boat.png"]


def test_all_albums_together_keep_no_more_than_the_budget(source: Source) -> None:
    room = Budget(100_000, most_kept=50_000)
    for number in range(200):
        *_, share = Album(lambda: source, "uid-flux", room).picture(f"step-{number}/thumbs/boat.jpg", allowed)
        share.release()
        assert room.used <= 50_000


def test_of_one_person_a_few_albums_are_kept_and_what_was_kept_of_others_goes_with_them(source: Source) -> None:
    room, kept = Budget(1_000_000), Albums()

    def album() -> Album:
        return Album(lambda: source, "uid-flux", room)

    hers = kept.of("bert", "bert", "flux", album)
    used = []
    for number in range(2 * albums.MOST_OF_ONE_PERSON):
        *_, share = kept.of("anne", f"session-{number}", "flux", album).picture("step-2/thumbs/boat.jpg", allowed)
        share.release()
        used.append(room.used)
    each = used[0]
    assert used[-1] == albums.MOST_OF_ONE_PERSON * each
    assert kept.of("bert", "bert", "flux", album) is hers
    for number in range(2 * albums.MOST_ALBUMS):
        kept.of(f"person-{number}", "", "flux", album)
    assert len(kept._kept) == albums.MOST_ALBUMS
    assert room.used == 0


def test_a_picture_takes_room_twice_while_it_is_read_and_once_until_it_is_sent(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.0)
    room = Budget(100_000, most_kept=0)
    album, source.size = Album(lambda: source, "uid-flux", room), 40_000
    *_, first = album.picture("step-200/boat.png", allowed)
    assert room.used == 40_000
    with pytest.raises(BusyError):
        album.picture("step-200/cat.png", allowed)
    assert room.used == 40_000, "and who was refused takes none"
    first.release()
    *_, second = album.picture("step-200/cat.png", allowed)
    second.release()
    assert room.used == 0


def test_what_was_kept_is_shown_no_more_once_the_right_has_gone(
    source: Source, album: Album, monkeypatch: pytest.MonkeyPatch
) -> None:
    album.picture("step-200/thumbs/boat.jpg", allowed)
    source.error = ForbiddenError("you may not")
    monkeypatch.setattr(albums, "RIGHTS_SECONDS", 0.0)
    with pytest.raises(ForbiddenError):
        album.picture("step-200/thumbs/boat.jpg", allowed)


def test_what_was_kept_is_shown_no_more_as_soon_as_a_request_was_refused(
    source: Source, album: Album, monkeypatch: pytest.MonkeyPatch
) -> None:
    album.picture("step-200/thumbs/boat.jpg", allowed)
    monkeypatch.setattr(albums, "INDEX_SECONDS", -1.0)
    source.error = ForbiddenError("you may not")
    for ask in (
        lambda: album.shown(-1.0),
        lambda: album.last(allowed),
        lambda: album.picture("step-200/thumbs/boat.jpg", allowed),
    ):
        with pytest.raises(ForbiddenError):
            ask()


def test_a_gallery_whose_source_is_gone_for_long_stays_as_long_as_its_caller_has_the_right(
    source: Source, album: Album, monkeypatch: pytest.MonkeyPatch
) -> None:
    thumbnail = "step-200/thumbs/boat.jpg"
    album.picture(thumbnail, allowed)
    source.error = NotNowError("gone")
    monkeypatch.setattr(albums, "RIGHTS_SECONDS", -1.0)
    monkeypatch.setattr(albums, "INDEX_SECONDS", -1.0)
    assert (len(album.last(allowed).steps), album.last(allowed).trouble) == (3, "gone")
    assert album.picture(thumbnail, allowed)[1] == b"z" * source.size

    def refused() -> None:
        raise ForbiddenError("not any more")

    for ask in (lambda: album.last(refused), lambda: album.picture(thumbnail, refused)):
        with pytest.raises(ForbiddenError):
            ask()
    with pytest.raises(NotNowError):
        album.picture("step-200/boat.png", allowed)


def test_another_attempt_is_looked_for_when_a_pod_has_gone() -> None:
    gone, there = Source(), Source()
    found = iter([gone, there])
    album = Album(lambda: next(found), "uid-flux", Budget())
    album.shown()
    gone.error = NotNowError("gone")
    album.picture("step-200/boat.png", allowed)
    assert there.asked == ["step-200/boat.png"]


def test_a_gallery_whose_source_is_gone_asks_for_it_once_and_not_for_each_picture(source: Source, album: Album) -> None:
    album.shown()
    source.error = NotNowError("gone")
    with pytest.raises(NotNowError):
        album.shown(-1.0)
    asked = len(source.asked)
    for number in range(5):
        with pytest.raises(NotNowError):
            album.picture(f"step-{number}/thumbs/boat.jpg", allowed)
    assert len(source.asked) == asked


def test_a_hiccup_of_the_leader_leaves_the_gallery_and_says_of_when_it_is(
    api: FakeApi, pod: dict[str, bytes], page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pod
    before = sources(page.get(PAGE).text)
    forwarded = "/api/v1/namespaces/default/pods/flux-1-0/portforward"
    api.refusals[forwarded] = (503, "the kubelet is away")
    monkeypatch.setattr(albums, "INDEX_SECONDS", -1.0)
    text = page.get(PAGE).text
    assert sources(text) == before
    assert re.search(r"As of \d\d:\d\d:\d\d UTC: the kubelet is away", text)
    asked = len(api.asked)
    page.get(PAGE)
    assert not [path for _, path, _ in api.asked[asked:] if "/pods" in path], "asked again by nobody for ten seconds"


def test_what_a_picture_takes_counts_as_its_viewer_s(
    pod: dict[str, bytes], page: TestClient, access: LinkAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod["/validation/step-200/boat-1024x512.png"] = PNG
    persons: set[str] = set()
    resize = Budget.resize
    monkeypatch.setattr(
        Budget, "resize", lambda self, share, size: (persons.add(share.person), resize(self, share, size))
    )
    assert page.get(f"{PAGE}/step-200/boat-1024x512.png").content == PNG
    assert persons == {access._caller.person}


def test_pictures_that_find_no_room_are_refused_in_a_sentence_with_when_to_ask_again(
    pod: dict[str, bytes], page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod["/validation/step-200/boat-1024x512.png"] = PNG
    monkeypatch.setattr(budget, "WAIT_SECONDS", 0.0)
    held: list[Share] = []

    def taken(self: Album, file: str, check: Callable[[], None]) -> tuple[str, bytes, Share]:
        held.append(self._budget.share())
        held[0].resize(budget.MOST_BYTES)
        return plain(self, file, check)

    plain = Album.picture
    with monkeypatch.context() as patch:
        patch.setattr(Album, "picture", taken)
        answer = page.get(f"{PAGE}/step-200/boat-1024x512.png")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "try again" in answer.text
    held[0].release()
    assert page.get(f"{PAGE}/step-200/boat-1024x512.png").content == PNG


def test_the_room_of_a_picture_is_free_once_it_is_sent_or_its_browser_has_gone_or_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room, got = Budget(), []

    async def take(message: Any) -> None:
        got.append(message)

    async def gone(_: Any) -> None:
        raise OSError("gone")

    async def nothing(_: Any) -> None:
        await asyncio.Event().wait()

    def send(to: Any) -> None:
        share = room.share()
        share.resize(200_000)
        answer = sent.Sent(b"x" * 200_000, share, media_type="image/png", headers={"x-a": "b"})
        asyncio.run(answer({"type": "http"}, to, to))

    send(take)
    assert b"".join(one.get("body", b"") for one in got) == b"x" * 200_000
    assert (b"content-length", b"200000") in got[0]["headers"]
    assert max(len(one.get("body", b"")) for one in got) == sent.PIECE
    with pytest.raises(OSError, match="gone"):
        send(gone)
    monkeypatch.setattr(sent, "SEND_SECONDS", 0.0)
    send(nothing)
    assert room.used == 0


def test_each_caller_has_an_album_of_his_own() -> None:
    kept, source = Albums(), Source()
    mine = kept.of("me", "me", "flux", lambda: Album(lambda: source, "", Budget()))
    assert kept.of("me", "me", "flux", lambda: Album(lambda: source, "", Budget())) is mine
    assert kept.of("me", "you", "flux", lambda: Album(lambda: source, "", Budget())) is not mine


def test_five_hundred_steps_and_a_step_of_many_pictures_are_bounded() -> None:
    steps = [
        tuple(Picture(step=step, name=f"p{number}", source=f"step-{step}/p{number}.png") for number in range(300))
        for step in range(500)
    ]
    body = pictures(Choice(namespace="default", job="flux"), steps).body
    assert body.count("<img") == 256
    assert body.count("<option") == 65
