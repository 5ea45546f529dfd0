"""Who sees and does what: by the rights of a token and nothing else, and never for another site."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from oarlock_local.patience import eventually
from tests.page.conftest import Visitor
from tests.page.played import KIND, Played
from tests.page.visit import Visit

pytestmark = pytest.mark.cluster

JOB = "/jobs/team-a/flux-lora"
LIVE = """async path => {
  const answer = await fetch(path), reader = answer.body.getReader();
  let text = '';
  while (!/event: (draw|reload|trouble)/.test(text)) {
    const { value, done } = await reader.read();
    if (done) break;
    text += new TextDecoder().decode(value);
  }
  reader.cancel();
  return text;
}"""
"""What a stream says until its first event."""


class Team:
    """A ServiceAccount that may look at, and change, the jobs of its namespace and nothing else."""

    def __init__(self, played: Played, namespace: str) -> None:
        self._played, self.namespace = played, namespace
        rules = [
            {"apiGroups": ["oarlock.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods", "events", "pods/log"], "verbs": ["get", "list", "watch"]},
        ]
        rbac, metadata = "rbac.authorization.k8s.io", {"name": "team", "namespace": namespace}
        subject = {"kind": "ServiceAccount", **metadata}
        role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "subjects": [subject],
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "team"},
        }
        played.cluster.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, role, binding])
        self._account = f"/api/v1/namespaces/{namespace}/serviceaccounts/team"

    def token(self) -> str:
        """One that the API server knows until `end`."""
        return self._played.cluster.kubectl("create", "token", "team", "-n", self.namespace).strip()

    def end(self) -> None:
        """Have its tokens be known no more, as after their time."""
        self._played.api.delete(self._account)


def login(visit: Visit, token: str) -> None:
    """Fill in the form that is open."""
    visit.page.get_by_label("Token").fill(token)
    visit.page.get_by_role("button", name="Log in").click()


def suspended(played: Played) -> bool:
    return played.api.get(f"{KIND.format('team-a')}/flux-lora")["spec"].get("suspend") is True


@pytest.fixture(scope="module")
def teams(played: Played) -> tuple[Team, Team]:
    return Team(played, "team-a"), Team(played, "team-b")


@pytest.fixture
def member(teams: tuple[Team, Team], visitor: Visitor, address: str) -> Iterator[Visit]:
    """Somebody of team-a who has logged in, and whom nothing has surprised."""
    visit = visitor(f"{address}/jobs/team-a")
    assert visit.findings() == []
    login(visit, teams[0].token())
    expect(visit.page.get_by_role("link", name="flux-lora")).to_be_visible()
    yield visit
    assert visit.seen.servers == {visit.origin}


def test_two_teams_see_their_own_jobs_and_nothing_of_each_other_though_both_look(
    teams: tuple[Team, Team], member: Visit, visitor: Visitor, address: str
) -> None:
    other = visitor(f"{address}/jobs/team-b")
    login(other, teams[1].token())
    expect(other.page.get_by_role("link", name="secret-project")).to_be_visible()
    for path in ("/jobs/team-b", "/jobs/team-b/secret-project", "/jobs/team-b/secret-project/logs", "/jobs"):
        member.to(path)
        expect(member.page.get_by_role("link", name="secret-project")).to_have_count(0)
        live = member.page.evaluate(LIVE, f"/live{path}")
        for seen in (member.page.content(), live):
            assert "SIGSEGV" not in seen, path
            assert "Recovering" not in seen, path
    expect(member.page.get_by_label("Namespace")).to_be_visible()
    other.to("/jobs/team-a")
    assert "Running" not in other.page.content()
    member.to("/jobs/team-a")
    expect(member.page.get_by_role("link", name="flux-lora")).to_be_visible()


def test_who_has_logged_out_or_whose_token_has_ended_is_asked_again_and_comes_back_to_where_he_was(
    played: Played, visitor: Visitor, address: str
) -> None:
    guest = Team(played, "team-a")
    visit = visitor(f"{address}{JOB}?axis=time")
    login(visit, "not-a-token")
    expect(visit.page.get_by_role("alert")).to_be_visible()
    login(visit, guest.token())
    expect(visit.page).to_have_url(f"{address}{JOB}?axis=time")
    visit.page.get_by_role("button", name="Log out").click()
    expect(visit.page.get_by_label("Token")).to_be_visible()
    visit.to(JOB)
    login(visit, guest.token())
    expect(visit.page.get_by_role("heading", level=1)).to_contain_text("flux-lora")
    guest.end()

    def is_asked_again() -> bool:
        visit.to(f"{JOB}/save")
        return "/login" in visit.page.url

    eventually(is_asked_again, "the end of the token")  # the API server knows it for ten seconds more
    assert "flux-lora" not in visit.page.locator("main").inner_text()
    login(visit, Team(played, "team-a").token())
    expect(visit.page).to_have_url(f"{address}{JOB}/save")


def test_a_form_of_another_site_or_without_its_token_does_nothing(played: Played, member: Visit) -> None:
    evil = f"<form method=post action='{member.origin}{JOB}/suspend'><button>Win</button></form>"
    for site in ("http://127.0.0.1:9/", "http://evil.test/"):  # our host's other port has our cookies
        member.page.route(site, lambda route: route.fulfill(body=evil, content_type="text/html"))
        member.page.goto(site)
        with member.page.expect_response(f"**{JOB}/suspend") as answered:
            member.page.get_by_role("button", name="Win").click()
        assert answered.value.status in {401, 403}, site
        assert not suspended(played)
    member.seen.servers -= {"http://127.0.0.1:9", "http://evil.test"}
    member.to(f"{JOB}/suspend")
    send = "([path, given]) => fetch(path, {method: 'POST', body: new URLSearchParams(given)}).then(one => one.status)"
    uid = member.page.locator("input[name=uid]").input_value()
    for token in ({}, {"csrf": "0123456789abcdef.00"}):
        assert member.page.evaluate(send, [f"{JOB}/suspend", {"uid": uid, **token}]) == 403
    assert not suspended(played)


def test_an_action_is_asked_first_and_then_done_with_the_name_of_who_did_it(played: Played, member: Visit) -> None:
    member.to(JOB)
    member.page.get_by_role("link", name="Suspend").click()
    expect(member.page.get_by_role("heading", name="Suspend flux-lora?")).to_be_visible()
    assert not suspended(played)
    member.page.get_by_role("link", name="Leave it as it is").click()
    expect(member.page).to_have_url(f"{member.origin}{JOB}")
    member.page.get_by_role("link", name="Suspend").click()
    member.page.get_by_role("button", name="Suspend").click()
    expect(member.page.get_by_text("in no Event")).to_be_visible()  # which this team may not create
    member.page.get_by_role("link", name="Go on").click()
    expect(member.page.get_by_text("Suspend, asked for by system:serviceaccount:team-a:team")).to_be_visible()
    job = played.api.get(f"{KIND.format('team-a')}/flux-lora")
    assert job["spec"]["suspend"] is True
    asked = json.loads(job["metadata"]["annotations"]["oarlock.dev/asked-by"])
    assert (asked["action"], asked["by"]) == ("Suspend", "system:serviceaccount:team-a:team")
    assert member.seen.complaints == []
    played.api.merge(f"{KIND.format('team-a')}/flux-lora", {"spec": {"suspend": False}})
