"""What every request passes, and what every answer has; on a laptop, where the port is everybody's on the machine."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock.web import app, lanes
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.assets import assets
from oarlock.web.settings import Settings

HERE = {"Sec-Fetch-Site": "same-origin"}
PAGES = ["/jobs", "/jobs/team", "/nowhere", "/jobs/NO_NAME", "/enter?key=wrong", "/theme"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "evil.example:8270", "[::2]", "a" * 5000]
)
def test_a_foreign_name_that_leads_here_gets_nothing(page: TestClient, host: str) -> None:
    for path in ("/jobs", "/live/jobs", "/static/x/page.css", "/"):
        answer = page.get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "<table" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "[::1]:8270", "LOCALHOST:1"])
def test_the_loopback_has_several_names_and_any_port_may_be_forwarded(page: TestClient, host: str) -> None:
    assert page.get("/jobs", headers={"Host": host, "Cookie": "; ".join(f"{k}={v}" for k, v in page.cookies.items())})


def test_who_has_not_followed_the_link_sees_nothing(page: TestClient, access: LinkAuthenticator) -> None:
    page.cookies.clear()
    assert [page.get(path).status_code for path in ("/", "/jobs", "/live/jobs", "/namespace?name=x")] == [401] * 4
    assert page.get("/enter?key=wrong").status_code == 401
    assert page.get("/enter").status_code == 401
    entered = page.get(access.link)
    assert 'content="0;url=/"' in entered.text
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in entered.headers["set-cookie"].split(";")}
    assert access.link.partition("=")[2] not in entered.headers["set-cookie"]
    assert page.get("/jobs").status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_forbids_what_the_page_does_not_need(page: TestClient, path: str) -> None:
    answer = page.get(path)
    policy = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers


class Inline(HTMLParser):
    """What a policy without 'unsafe-inline' would have a browser refuse, and what comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.found.append(tag)
        self.found += [name for name in given if name == "style" or name.startswith("on")]
        addresses = [given.get(name) or "" for name in ("src", "href", "action")]
        self.found += [one for one in addresses if one and not re.match(r"/(?!/)|[#?]", one)]


@pytest.mark.parametrize("path", PAGES)
def test_nothing_stands_inline_and_nothing_comes_from_elsewhere(api: FakeApi, page: TestClient, path: str) -> None:
    api.add_job("flux", "team", status={"curve": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]})
    read = Inline()
    read.feed(page.get(path).text)
    assert read.found == []


def test_styles_and_scripts_are_small_and_kept_for_ever(page: TestClient) -> None:
    assert sum(len(content) for content, _ in assets().values()) <= 150_000
    for address in re.findall(r'"(/static/[^"]+)"', page.get("/jobs").text):
        answer = page.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    for path in ("/static/old/page.css", "/static/x/..%2f__init__.py", "/static/x/app.py"):
        assert "immutable" not in page.get(path).headers.get("cache-control", "")
    assert page.get("/static/x/app.py").status_code == 404


def test_a_theme_is_kept_whoever_asks_and_however_old_the_page_is(page: TestClient) -> None:
    page.cookies.clear()
    form = {"theme": "dark", "back": "/jobs?text=x"}
    assert page.post("/theme", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert "oarlock-theme" not in page.cookies
    answer = page.post("/theme", data=form, headers=HERE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?text=x")
    assert page.cookies["oarlock-theme"] == "dark"
    assert page.post("/theme", data={"theme": "<b>"}, headers=HERE).status_code == 400


def test_a_chosen_theme_is_what_pages_have(page: TestClient) -> None:
    page.post("/theme", data={"theme": "dark"}, headers=HERE)
    assert 'data-theme="dark"' in page.get("/jobs").text


def test_a_theme_leads_nowhere_else(page: TestClient) -> None:
    answer = page.post("/theme", data={"theme": "dark", "back": "//evil.example"}, headers=HERE)
    assert answer.headers["location"] == "/"


def test_after_a_form_was_refused_the_theme_can_be_chosen(page: TestClient) -> None:
    refused = page.post("/theme", data={"theme": "<b>"}, headers=HERE).text
    back = re.search('name="back" value="([^"]+)"', refused)
    assert back
    assert page.get(back[1]).status_code == 303, "not the form's own address, which shows nothing"


def test_every_input_has_a_bound(page: TestClient) -> None:
    assert page.get(f"/jobs?text={'x' * 5000}").status_code == 414
    assert page.post("/theme", content=b"x" * 70_000, headers=HERE).status_code == 413
    assert page.post("/theme", content=b"&".join([b"a=b"] * 100), headers=HERE).status_code == 400
    assert page.post("/theme", content=b"\xff\xfe", headers=HERE).status_code == 400
    assert 'value="' + "y" * 200 + '"' in page.get(f"/jobs?text={'y' * 300}").text


def test_who_asks_too_much_at_once_is_told_when_to_ask_again(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_WAITING", 0)
    answer = page.get("/jobs")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "try again" in answer.text


def test_too_many_streams_are_refused_and_the_page_stays(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 0)
    assert page.get("/live/jobs").status_code == 503
    assert page.get("/jobs").status_code == 200


@pytest.mark.parametrize(
    ("status", "answered", "said"),
    [(404, 404, "It is not there"), (503, 502, "refused"), (400, 400, "refused"), (401, 401, "Who are you")],
)
def test_an_error_says_what_is_wrong(api: FakeApi, page: TestClient, status: int, answered: int, said: str) -> None:
    api.before = lambda *_: (status, "because <b>")
    answer = page.get("/jobs")
    assert answer.status_code == answered
    assert said in answer.text
    assert "<b>" not in answer.text


def test_a_fault_of_the_page_itself_tells_nothing_of_it_and_is_guarded_like_all_else(
    access: LinkAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the token is t0ken")

    monkeypatch.setattr("oarlock.web.views.jobs.jobs", broken)
    with TestClient(app.build(Settings(), access), raise_server_exceptions=False, base_url="http://127.0.0.1") as page:
        page.get(access.link)
        answer = page.get("/jobs")
    assert answer.status_code == 500
    assert "Something broke" in answer.text
    assert "t0ken" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_cluster_that_is_away_is_said(page: TestClient, access: LinkAuthenticator) -> None:
    access._caller.cluster._access = type(access._caller.cluster._access)(
        "http://127.0.0.1:1", access._caller.cluster._access.pool
    )
    answer = page.get("/jobs")
    assert answer.status_code == 502
    assert "does not answer" in answer.text


def test_the_kubelet_is_answered_by_any_name(page: TestClient) -> None:
    page.cookies.clear()
    assert page.get("/healthz", headers={"Host": "10.0.0.7:8270"}).text == "ok"
