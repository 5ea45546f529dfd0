"""The page in a cluster: who logs in by a token sees what the token may, for an hour at most, and nobody else's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient
from urllib3 import PoolManager

from oarlock.web.access.token import LIFE_SECONDS, TokenAuthenticator
from oarlock.web.app import build
from oarlock.web.guards import Csrf
from oarlock.web.settings import Settings

HERE = {"Sec-Fetch-Site": "same-origin"}
HOST = "page.example.com"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def page(api: FakeApi, clock: Clock) -> Iterator[TestClient]:
    api.tokens |= {"anne": {"team"}, "bert": {"other"}}
    api.users |= {"anne": "system:serviceaccount:team:anne", "bert": "bert@example.com"}
    api.add_job("annes", "team")
    api.add_job("berts", "other")
    csrf = Csrf()
    who = TokenAuthenticator(server=api.address, pool=PoolManager(), csrf=csrf, clock=clock)
    app = build(Settings(hosts=frozenset({HOST})), who, csrf=csrf)
    with TestClient(app, base_url=f"https://{HOST}", follow_redirects=False) as page:
        yield page


def log_in(page: TestClient, token: str, then: str = "/") -> str:
    answer = page.post("/login", data={"token": token, "then": then}, headers=HERE)
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"]


def csrf_of(text: str) -> str:
    found = re.search('name="csrf" value="([^"]+)"', text)
    assert found
    return found[1]


def jwt(expires: float) -> str:
    told = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{told}.c2ln"


def test_each_sees_his_own_jobs_and_not_the_others(page: TestClient) -> None:
    log_in(page, "anne")
    assert "annes" in page.get("/jobs/team").text
    refused = page.get("/jobs/other").text
    assert "You may not see the jobs of other" in refused
    assert "berts" not in refused
    page.cookies.clear()
    log_in(page, "bert")
    assert "berts" in page.get("/jobs/other").text
    refused = page.get("/jobs/team").text
    assert "You may not see the jobs of team" in refused
    assert "annes" not in refused, "though a watch of them is open"


def test_who_may_not_see_all_namespaces_is_asked_for_his(page: TestClient) -> None:
    log_in(page, "bert")
    assert page.get("/").headers["location"] == "/jobs"
    assert 'action="/namespace"' in page.get("/jobs").text
    chosen = page.get("/namespace?name=other")
    assert (chosen.status_code, chosen.headers["location"]) == (303, "/jobs/other")
    assert page.get("/").headers["location"] == "/jobs/other", "and it is remembered"


def test_a_service_account_begins_with_its_own_namespace(page: TestClient) -> None:
    log_in(page, "anne")
    assert page.get("/").headers["location"] == "/jobs/team"


def test_the_cookie_is_for_this_site_alone_and_tells_nothing(page: TestClient) -> None:
    cookie = log_in(page, "anne")
    assert cookie.startswith("__Host-oarlock-0=")
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert f"Max-Age={LIFE_SECONDS}" in cookie
    assert "anne" not in cookie
    assert "anne" not in base64.urlsafe_b64decode(cookie.partition("=")[2].partition(";")[0] + "==").decode("latin-1")


def test_a_login_ends_after_an_hour(page: TestClient, clock: Clock) -> None:
    log_in(page, "anne")
    clock.now += LIFE_SECONDS - 1
    assert page.get("/jobs/team").status_code == 200
    clock.now += 2
    answer = page.get("/jobs/team?text=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?then=/jobs/team%3Ftext%3Dx")


def test_a_login_ends_with_its_token(api: FakeApi, page: TestClient, clock: Clock) -> None:
    token = jwt(clock.now + 60)
    api.tokens[token] = {"team"}
    log_in(page, token)
    assert page.get("/jobs/team").status_code == 200
    clock.now += 61
    assert page.get("/jobs/team").status_code == 303


def test_a_token_that_the_cluster_does_not_know_any_more_leads_to_the_login(api: FakeApi, page: TestClient) -> None:
    log_in(page, "anne")
    del api.tokens["anne"]
    answer = page.get("/jobs/team")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?then=/jobs/team")
    assert page.get("/login?then=/jobs/team").status_code == 200, "and no further"


def test_a_token_as_long_as_identity_providers_make_them_fits(api: FakeApi, page: TestClient) -> None:
    token = "x" * 8000
    api.tokens[token] = {"team"}
    log_in(page, token)
    assert "annes" in page.get("/jobs/team").text


@pytest.mark.parametrize("token", ["nobody", "two words", "", "x" * 9000, "line\nbreak"])
def test_no_token_no_entry(page: TestClient, token: str) -> None:
    answer = page.post("/login", data={"token": token}, headers=HERE)
    assert answer.status_code in {400, 401}
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize(
    "then", ["//evil.example", "https://evil.example", "/\\evil.example", "/login", "javascript:1"]
)
def test_the_login_leads_nowhere_else(page: TestClient, then: str) -> None:
    answer = page.post("/login", data={"token": "anne", "then": then}, headers=HERE)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {},
    ],
)
def test_no_other_site_logs_somebody_in(page: TestClient, headers: dict[str, str]) -> None:
    answer = page.post("/login", data={"token": "anne"}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_login_cannot_be_forged_or_used_elsewhere(page: TestClient, api: FakeApi) -> None:
    log_in(page, "anne")
    sealed = page.cookies["__Host-oarlock-0"]
    page.cookies.clear()
    for cookie in (sealed[:-2] + "AA", "", "x" * 5000):
        page.cookies.set("__Host-oarlock-0", cookie)
        assert page.get("/jobs/team").status_code == 303
        page.cookies.clear()
    other = TokenAuthenticator(server=api.address, pool=PoolManager(), csrf=Csrf())
    with TestClient(build(Settings(hosts=frozenset({HOST})), other), base_url=f"https://{HOST}") as restarted:
        restarted.cookies.set("__Host-oarlock-0", sealed)
        assert restarted.get("/jobs/team", follow_redirects=False).status_code == 303, "the key is the process's own"


def test_who_logs_out_is_out_also_with_a_cookie_that_was_kept(page: TestClient) -> None:
    log_in(page, "anne")
    kept = page.cookies["__Host-oarlock-0"]
    token = csrf_of(page.get("/jobs/team").text)
    refused = page.post("/logout", data={"csrf": "wrong"}, headers=HERE)
    assert refused.status_code == 403
    assert page.get("/jobs/team").status_code == 200
    answer = page.post("/logout", data={"csrf": token}, headers=HERE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert answer.headers["clear-site-data"] == '"cache"'
    assert "__Host-oarlock-0" not in page.cookies
    page.cookies.set("__Host-oarlock-0", kept)
    assert page.get("/jobs/team").status_code == 303


def test_a_proxy_that_logs_people_in_needs_no_cookie(page: TestClient) -> None:
    assert "annes" in page.get("/jobs/team", headers={"Authorization": "Bearer anne"}).text
    assert "You may not see" in page.get("/jobs/team", headers={"Authorization": "Bearer bert"}).text
    assert page.get("/jobs/team", headers={"Authorization": "Basic anne"}).status_code == 303
    assert page.get("/jobs/team").status_code == 303


def test_a_csrf_token_of_one_is_none_of_another(page: TestClient) -> None:
    log_in(page, "anne")
    token = csrf_of(page.get("/jobs/team").text)
    log_in(page, "bert")
    assert page.post("/logout", data={"csrf": token}, headers=HERE).status_code == 403
    log_in(page, "anne")
    assert page.post("/logout", data={"csrf": token}, headers=HERE).status_code == 403, "nor in his next session"


def test_a_theme_is_kept_also_once_a_proxy_sends_another_token_or_the_login_has_ended(page: TestClient) -> None:
    form = {"theme": "dark", "back": "/jobs/team"}
    for headers in ({"Authorization": "Bearer anne"}, {}):
        assert page.post("/theme", data=form, headers={**HERE, **headers}).status_code == 303


def test_a_link_from_another_site_finds_the_login_that_is_there(page: TestClient) -> None:
    """A browser sends no cookie with it: the page it gets asks again by itself, and then there is one."""
    answer = page.get("/jobs/team?text=a", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'content="0;url=/login?then=/jobs/team%3Ftext%3Da"' in answer.text
    log_in(page, "anne")
    answer = page.get("/login?then=/jobs/team%3Ftext%3Da")
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/team?text=a")


def test_over_a_forwarded_port_the_cookie_needs_no_https(page: TestClient) -> None:
    answer = page.post("http://localhost:8080/login", data={"token": "anne"}, headers=HERE)
    assert answer.headers["set-cookie"].startswith("oarlock-0=")
    assert "Secure" not in answer.headers["set-cookie"]
