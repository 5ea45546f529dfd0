"""Logs on the page: whose lines, how many, that they go on by themselves, and that they are their caller's own."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_api import FakeApi
from starlette.testclient import TestClient

from oarlock import followed_logs
from oarlock.errors import ForbiddenError, NotNowError
from oarlock.logs import LogLine
from oarlock.web import live, tails
from oarlock.web.access.link import LinkAuthenticator
from oarlock.web.app import build
from oarlock.web.drawn.logs import parse_pods, told
from oarlock.web.mounts import Mount
from oarlock.web.outputs import JobOutput
from oarlock.web.settings import Settings
from oarlock.web.tails import BLOCK_LINES, MOST_BLOCKS, Tail, Tails
from oarlock_api.contract.history import HISTORY
from oarlock_api.contract.layout import OWNER, Owner
from oarlock_local import patience

EVIL = "<script>alert(1)</script>"
PAGE = "/jobs/default/flux/logs"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits for the first lines, or the end, however busy the machine is."""
    monkeypatch.setattr(tails, "FIRST_SECONDS", patience.SECONDS)
    monkeypatch.setattr(tails, "NOTED_SECONDS", 2.0)


@pytest.fixture
def notes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing follows the first note of a page: it waits for no line behind it."""
    monkeypatch.setattr(tails, "NOTED_SECONDS", 0.0)


class Lines:
    """A source: the lines of a list, then those that a test adds, until it ends."""

    def __init__(self, *texts: str, error: Exception | None = None) -> None:
        self._texts, self._error = list(texts), error
        self._more = threading.Condition()
        self.ended = False

    def add(self, *texts: str) -> None:
        with self._more:
            self._texts += texts
            self._more.notify_all()

    def end(self) -> None:
        with self._more:
            self.ended = True
            self._more.notify_all()

    def lines(self) -> Iterator[LogLine]:
        done = 0
        while True:
            with self._more:
                self._more.wait_for(lambda done=done: len(self._texts) > done or self.ended or self._error)  # type: ignore[misc]
                if len(self._texts) == done:
                    if self._error:
                        raise self._error
                    return
                text = self._texts[done]
            done += 1
            yield LogLine(text=text, time="2026-01-01T00:00:01Z", attempt=1, rank=0)


class Bell:
    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)

    def ring(self) -> None:
        self.rung.release()


def job(api: FakeApi, nodes: int = 2, **status: Any) -> dict[str, Any]:
    found = api.add_job("flux", status={"attempt": 1, "phase": "Running", **status})
    found["spec"]["nodes"] = nodes
    return found


def texts(tail: Tail) -> list[str]:
    return [line.text for block in tail.read().blocks for line in block.lines]


def settled(tail: Tail, text: str) -> Tail:
    """The tail, once it has that line."""
    with tail._news:
        assert tail._news.wait_for(lambda: text in _known(tail), patience.SECONDS)
    return tail


def _known(tail: Tail) -> list[str]:
    lines = [line for block in tail._blocks for line in block.lines] + tail._open + tail._new
    return [line.text for line in lines]


class Ranks(Lines):
    """Lines of two ranks, of which the one is told after the other; one line has no time."""

    def lines(self) -> Iterator[LogLine]:
        for rank in (1, 0):
            for second in (2, 4):
                yield LogLine(text=f"{rank} at {second}", time=f"2026-01-01T00:00:0{second}Z", attempt=1, rank=rank)
            yield LogLine(text=f"{rank} has no time", attempt=1, rank=rank)


def test_lines_of_several_ranks_stand_in_the_order_of_their_times() -> None:
    tail = settled(Tail(Ranks()), "0 has no time")
    assert texts(tail) == ["1 at 2", "0 at 2", "1 at 4", "1 has no time", "0 at 4", "0 has no time"]


def test_the_newest_lines_of_rank_0_have_their_time_attempt_and_rank(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01.5Z loss 1\n")
    api.add_pod("flux", 1, 1, "2026-01-01T00:00:02Z of rank 1\n")
    text = page.get(PAGE).text
    assert (
        '<time datetime="2026-01-01T00:00:01.5Z" title="2026-01-01, UTC">00:00:01</time><span class="who">pod 0</span> loss 1'
        in text
    )
    assert "of rank 1" not in text
    both = page.get(PAGE, params={"pods": "0-1", "find": "LOSS"}).text
    assert "loss 1" in both
    assert "of rank 1" not in both
    assert "of rank 1" in page.get(PAGE, params={"pods": "all"}).text


STEP = '{"time":"2026-01-01T00:00:01Z","attempt":1,"step":140,"total":500,"loss":0.7123456,"secondsPerStep":0.3912}'
WRONG = '{"time":"2026-01-01T00:00:02Z","level":"error","job":"flux","attempt":1,"rank":0,"message":"no\\u001b[31m room <b>"}'


def test_lines_are_told_in_words_and_the_address_says_where_they_are_as_they_were_printed(
    api: FakeApi, page: TestClient
) -> None:
    job(api)
    api.add_pod("flux", 1, 0, f"2026-01-01T00:00:01Z {STEP}\n2026-01-01T00:00:02Z {WRONG}\n")
    words, printed = page.get(PAGE).text, page.get(PAGE, params={"raw": "1", "find": "room"}).text
    assert "step 140 of 500, loss 0.7123, 0.391 s/step</p>" in words
    assert '<p class="error">' in words
    assert "<strong>ERROR</strong> no room &lt;b&gt;</p>" in words
    assert "lossSecondsPerStep" not in words
    assert "&quot;message&quot;:&quot;no" in printed
    assert f'href="{PAGE}?raw=1"' in words
    assert f'href="{PAGE}?find=room"' in printed
    assert '<input type="hidden" name="raw" value="1">' in printed


def test_a_text_is_found_in_what_is_shown_as_well_as_in_what_was_printed(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod("flux", 1, 0, f"2026-01-01T00:00:01Z {STEP}\n2026-01-01T00:00:02Z other\n")
    for text in ("Loss 0.71", '"LOSS":0.71'):
        found = page.get(PAGE, params={"find": text}).text
        assert "step 140 of 500" in found, text
        assert "other</p>" not in found


def test_whose_line_it_is_is_said_where_there_are_several(api: FakeApi, page: TestClient) -> None:
    job(api, nodes=1, attempt=2)
    api.add_pod("flux", 2, 0, "2026-01-01T00:00:01Z x\n")
    assert '<span class="who">attempt 2</span> x' in page.get(PAGE).text
    assert 'class="who"' not in page.get(PAGE, params={"attempt": "2"}).text


@pytest.mark.usefixtures("notes_alone")
@pytest.mark.parametrize(
    ("nodes", "pods", "words"),
    [(4, "0, 2-3", "Pods 0, 2-3 run ranks 0-7, 16-31. "), (4, "3", "Pod 3 runs ranks 24-31. "), (1, "0", "")],
)
def test_which_ranks_the_chosen_pods_run_is_said(
    api: FakeApi, page: TestClient, nodes: int, pods: str, words: str
) -> None:
    job(api, nodes=nodes)
    text = page.get(PAGE, params={"pods": pods}).text
    assert words in text
    assert ("ranks" in text) is bool(words), "where there is one pod, these are all"


def test_nothing_that_a_log_says_becomes_markup(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod("flux", 1, 0, f"2026-01-01T00:00:01Z {EVIL}\n{EVIL}\n")
    text = page.get(PAGE, params={"find": "script", "pods": EVIL}).text
    assert EVIL not in text
    assert text.count("&lt;script&gt;alert(1)") > 2


def test_a_new_line_comes_by_itself_and_with_it_its_block_alone(
    api: FakeApi, listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "GATHER_SECONDS", 0.05)
    monkeypatch.setattr(followed_logs, "LOOK_SECONDS", 0.05)
    job(api)
    log = "/api/v1/namespaces/default/pods/flux-1-0/log"
    api.add_pod("flux", 1, 0, "".join(f"2026-01-01T00:00:01Z line {number}\n" for number in range(60)))
    stream = listen(f"/live{PAGE}")
    regions = {one["id"]: one for one in stream.next().data["regions"]}
    assert list(regions["log"]["html"]) == ["log-0", "log-1"]
    api.logs[log] += b"2026-01-01T00:00:02Z more\n"
    regions = {one["id"]: one for one in stream.next().data["regions"]}
    assert list(regions["log"]["html"]) == ["log-1"]
    assert "more" in regions["log"]["html"]["log-1"]


def test_a_thousand_ranks_open_as_many_logs_as_were_chosen_and_sixteen_at_most(api: FakeApi, page: TestClient) -> None:
    job(api, nodes=1000)
    for rank in range(40):
        api.add_pod("flux", 1, rank, "2026-01-01T00:00:01Z x\n")
    opened: set[str] = set()
    news = threading.Condition()

    def before(_: str, path: str, __: Any) -> None:
        if "/log?" in path:
            with news:
                opened.add(path.partition("/log?")[0].rpartition("-")[2])
                news.notify_all()

    api.before = before
    page.get(PAGE)
    assert opened == {"0"}
    assert "16 pods are read at once" in page.get(PAGE, params={"pods": "all"}).text
    with news:
        assert news.wait_for(lambda: len(opened) == 16, patience.SECONDS)
    assert opened == {str(rank) for rank in range(16)}
    lists = [path for _, path, _ in api.asked if path.startswith("/api/v1/namespaces/default/pods?")]
    assert all("oarlock.dev%2Frank" in path for path in lists), "never all pods of the job"


@pytest.mark.parametrize(
    ("given", "nodes", "pods", "words"),
    [
        ("", 8, {0}, ""),
        ("3", 8, {3}, ""),
        ("0, 2 4-6", 8, {0, 2, 4, 5, 6}, ""),
        ("all", 3, {0, 1, 2}, ""),
        ("6-9", 8, {6, 7}, ""),
        ("0-999999", 1000, set(range(16)), "at once"),
        ("9", 8, {0}, "pods 0 to 7"),
        ("-1", 8, {0}, "no pod"),
        ("x", 8, {0}, "no pod"),
        ("\u0663", 8, {0}, "no pod"),
        ("5-2", 8, {2, 3, 4, 5}, ""),
    ],
)
def test_pods_are_written_as_people_do(given: str, nodes: int, pods: set[int], words: str) -> None:
    found, said = parse_pods(given, nodes=nodes)
    assert found == pods
    assert words in said
    assert bool(words) == bool(said)
    assert parse_pods(told(found), nodes=nodes)[0] == found


def test_what_is_kept_is_bounded_has_no_gap_and_says_how_much_went_before(api: FakeApi) -> None:
    assert api
    tail = settled(Tail(Lines(*map(str, range(2345)))), "2344")
    seen, shown = tail.read(), texts(tail)
    assert len(shown) <= BLOCK_LINES * (MOST_BLOCKS + 1)
    assert shown == [str(number) for number in range(seen.before, 2345)]
    assert seen.before > 0
    assert {len(block.lines) for block in seen.blocks[:-1]} == {BLOCK_LINES}


def test_long_lines_are_bounded_by_their_characters_and_the_newest_stay() -> None:
    lines = [f"{number}".ljust(2000, "\u4e2d") for number in range(1000)]
    tail = settled(Tail(Lines(*lines)), lines[-1])
    seen, shown = tail.read(), texts(tail)
    assert sum(map(len, shown)) <= tails.MOST_CHARACTERS + BLOCK_LINES * 2000
    assert shown == lines[seen.before :]
    assert shown


def test_a_bell_rings_once_until_somebody_looks_again() -> None:
    lines, bell = Lines("a"), Bell()
    tail = settled(Tail(lines), "a")
    tail.read(bell)  # type: ignore[arg-type]
    lines.add("b", "c", "d")
    settled(tail, "d")
    assert bell.rung.acquire(timeout=patience.SECONDS)
    assert not bell.rung.acquire(blocking=False)
    tail.read()
    lines.end()
    assert bell.rung.acquire(timeout=patience.SECONDS)
    assert tail.read().over


def test_why_a_log_cannot_be_read_stands_where_its_lines_would(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod("flux", 1, 0, "")
    api.refusals["/api/v1/namespaces/default/pods/flux-1-0/log"] = (403, "pods/log is forbidden")
    assert "pods/log is forbidden" in page.get(PAGE).text


def test_a_still_page_has_no_stream_and_leads_back_to_the_live_one(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z x\n")
    live, still = (page.get(PAGE, params={"find": "x", **more}).text for more in ({}, {"still": "1"}))
    assert 'data-live="/live/jobs/default/flux/logs?find=x"' in live
    assert f'href="{PAGE}?find=x&amp;still=1"' in live
    assert "data-live" not in still
    assert f'href="{PAGE}?find=x"' in still


def test_each_caller_reads_by_requests_of_his_own() -> None:
    kept, mine, theirs = Tails(), Lines("mine"), Lines("theirs")
    first = kept.open("me", "me", "same", lambda: Tail(mine))
    assert kept.open("me", "me", "same", lambda: Tail(theirs)) is first
    other = kept.open("you", "you", "same", lambda: Tail(theirs))
    assert texts(other) == ["theirs"]


def test_who_looks_at_too_many_loses_the_one_that_he_looked_at_longest_ago() -> None:
    kept, sources = Tails(), [Lines(str(number)) for number in range(tails.MOST_OF_ONE_PERSON + 1)]
    for number, source in enumerate(sources):
        kept.open("me", "me", number, lambda source=source: Tail(source))  # type: ignore[misc]
    assert [source.ended for source in sources] == [True, *[False] * tails.MOST_OF_ONE_PERSON]


def test_one_person_has_as_many_logs_whether_by_one_token_or_by_several_and_each_token_reads_its_own() -> None:
    kept, sources = Tails(), [Lines(str(number)) for number in range(tails.MOST_OF_ONE_PERSON + 1)]
    for number, source in enumerate(sources):
        tail = kept.open("anne", f"token-{number}", "same", lambda source=source: Tail(source))  # type: ignore[misc]
        assert texts(tail) == [str(number)]
    assert [source.ended for source in sources] == [True, *[False] * tails.MOST_OF_ONE_PERSON]


def test_too_many_logs_of_all_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_TAILS", 1)
    kept = Tails()
    kept.open("me", "me", 0, lambda: Tail(Lines("x")))
    with pytest.raises(NotNowError, match="try again"):
        kept.open("you", "you", 0, lambda: Tail(Lines("x")))


def test_a_log_that_nobody_looks_at_any_more_is_read_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(tails, "LOOK_SECONDS", 0.0)
    source = Lines("x")
    Tails().open("me", "me", 0, lambda: Tail(source))
    with source._more:
        assert source._more.wait_for(lambda: source.ended, patience.SECONDS)


def test_an_error_ends_a_log_and_is_said() -> None:
    tail = Tail(Lines("x", error=ForbiddenError("you may not")))
    with tail._news:
        assert tail._news.wait_for(lambda: tail._over, patience.SECONDS)
    assert (texts(tail), tail.read().trouble) == (["x"], "you may not")


@pytest.mark.parametrize(("error", "grows"), [(ForbiddenError("you may not"), False), (None, True)])
def test_a_log_that_broke_or_is_kept_of_a_job_that_runs_is_read_anew_at_a_later_look(
    monkeypatch: pytest.MonkeyPatch, *, error: Exception | None, grows: bool
) -> None:
    kept, lines = Tails(), Lines("old", error=error)
    lines.ended = True
    first = kept.open("me", "me", 0, lambda: Tail(lines, grows=grows))
    with first._news:
        assert first._news.wait_for(lambda: first._over, patience.SECONDS)
    assert kept.open("me", "me", 0, lambda: Tail(Lines("new"))) is first, "not at each look"
    monkeypatch.setattr(tails, "AGAIN_SECONDS", -1.0)
    anew = Lines("new")
    anew.ended = True
    again = kept.open("me", "me", 0, lambda: Tail(anew))
    with again._news:
        assert again._news.wait_for(lambda: again._over, patience.SECONDS)
    assert texts(again) == ["new"]


def test_a_log_that_is_read_anew_from_its_beginning_is_seen_as_it_was_until_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "AGAIN_SECONDS", -1.0)
    kept, old, bell = Tails(), Lines("1", "2"), Bell()
    old.ended = True
    first = kept.open("me", "me", 0, lambda: Tail(old, grows=True))
    with first._news:
        assert first._news.wait_for(lambda: first._over, patience.SECONDS)
    anew = Lines("1")
    again = kept.open("me", "me", 0, lambda: Tail(anew, grows=True))
    again.read(bell)  # type: ignore[arg-type]
    assert texts(again) == ["1", "2"]
    anew.add("2", "3")
    settled(again, "3")
    assert not bell.rung.acquire(blocking=False), "nothing else is to be seen yet"
    anew.end()
    assert bell.rung.acquire(timeout=patience.SECONDS)
    assert texts(again) == ["1", "2", "3"]


def test_a_log_that_grows_is_read_anew_so_long_after_its_end_and_not_after_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, source = 0.0, Lines("x")
    monkeypatch.setattr(tails, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    tail = Tail(source, grows=True)
    now = 100.0
    source.end()
    with tail._news:
        assert tail._news.wait_for(lambda: tail._over, patience.SECONDS)
    now = 105.0
    assert not tail.is_stale
    now = 111.0
    assert tail.is_stale


@pytest.mark.parametrize(
    ("status", "params", "read"),
    [
        ({"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}, {}, 1),
        ({"attempt": 2}, {"attempt": "1"}, 1),
        ({}, {"attempt": "1", "kept": "1"}, 2),
    ],
)
def test_what_an_output_keeps_is_read_anew_only_while_more_of_it_may_come(
    *,
    api: FakeApi,
    access: LinkAuthenticator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: dict[str, Any],
    params: dict[str, str],
    read: int,
) -> None:
    asked = []
    monkeypatch.setattr(tails, "AGAIN_SECONDS", -1.0)
    monkeypatch.setattr(JobOutput, "logs", lambda _, wanted: asked.append(wanted) or iter(()))
    job(api, **status)
    (tmp_path / "flux" / HISTORY / "logs/1-uidflu").mkdir(parents=True)
    (tmp_path / "flux" / HISTORY / "logs/1-uidflu/0.log.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "flux" / OWNER).write_text(Owner(job_uid="uid-flux", attempt=1).to_json())
    app = build(Settings(outputs=(Mount(folder=tmp_path),)), access)
    with TestClient(app, base_url="http://127.0.0.1:8270", follow_redirects=False) as page:
        page.get(access.link)
        page.get(PAGE, params=params)
        page.get(PAGE, params=params)
    assert len(asked) == read


def test_a_log_that_came_to_its_good_end_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "AGAIN_SECONDS", -1.0)
    kept, lines = Tails(), Lines("all")
    lines.ended = True
    first = kept.open("me", "me", 0, lambda: Tail(lines))
    with first._news:
        assert first._news.wait_for(lambda: first._over, patience.SECONDS)
    assert kept.open("me", "me", 0, lambda: Tail(Lines("new"))) is first


@pytest.mark.usefixtures("notes_alone")
@pytest.mark.parametrize(
    ("status", "params", "path"),
    [
        ({"phase": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"}, {}, "1-uidflu/0.log.gz"),
        ({"phase": "Running", "attempt": 2}, {"attempt": "1", "pods": "1"}, "1-uidflu/1.log.gz"),
        ({"phase": "Running", "attempt": 2}, {"attempt": "1", "pods": "0-1"}, "1-uidflu"),
        (
            {"phase": "Recovering", "attempts": [{"number": 1, "endTime": "2026-01-01T00:00:00Z"}]},
            {"attempt": "1"},
            "1-uidflu/0.log.gz",
        ),
    ],
)
def test_an_attempt_whose_pods_are_gone_says_so_and_which_file_has_its_log(
    *, api: FakeApi, page: TestClient, status: dict[str, Any], params: dict[str, str], path: str
) -> None:
    job(api, **status)["spec"]["output"] = {"directory": "full", "persistentVolumeClaim": {"claimName": "nfs-out"}}
    text = page.get(PAGE, params=params).text
    assert "of attempt 1 " in text
    assert f"<code>full/.oarlock/history/logs/{path}</code>" in text
    assert "nfs-out" in text
    assert ("waiting for pods" in text) is (status["phase"] == "Recovering"), "an older attempt waits for nothing"
    assert "Times are UTC" in text
    assert "oarlock logs --path" in text


def test_a_job_that_keeps_no_logs_promises_none(api: FakeApi, page: TestClient) -> None:
    job(api, attempt=2)["spec"]["output"] = {"history": {"logSize": "0"}}
    text = page.get(PAGE, params={"attempt": "1"}).text
    assert "logSize is 0" in text
    assert ".log.gz" not in text


def test_a_text_that_no_line_has_is_not_taken_for_pods_that_are_gone(api: FakeApi, page: TestClient) -> None:
    job(api, attempt=2)
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z x\n", state="terminated")
    text = page.get(PAGE, params={"attempt": "1", "find": "nowhere"}).text
    assert "are gone" not in text
    assert "No line has" in text


def test_the_log_of_a_fault_ends_soon_after_it_and_leads_to_the_rest(api: FakeApi, page: TestClient) -> None:
    job(api)
    api.add_pod(
        "flux", 1, 0, "2026-01-01T00:00:01.5Z before\n2026-01-01T00:01:00Z at it\n2026-01-01T00:01:00.1Z later\n"
    )
    text = page.get(PAGE, params={"until": "2026-01-01T00:01:00Z"}).text
    assert ("before</p>" in text, "at it</p>" in text, "later</p>" in text) == (True, True, False)
    assert f'href="{PAGE}"' in text, "all of it"
    for strange in ("<b>", "tomorrow", "0001-01-01T00:00:00+23:00"):
        assert "later</p>" in page.get(PAGE, params={"until": strange}).text


def test_where_all_lines_that_are_read_are_later_than_a_fault_that_is_said_and_where_the_older_ones_lie(
    api: FakeApi, page: TestClient
) -> None:
    job(api)
    api.add_pod("flux", 1, 0, "2026-01-01T00:02:00Z later\n")
    text = page.get(PAGE, params={"until": "2026-01-01T00:01:00Z"}).text
    assert "None of the newest 20,000 lines of the pod is from before that time." in text
    assert "Nothing was printed yet" not in text
    assert "are gone" not in text
    assert "<code>flux/.oarlock/history/logs/1-uidflu/0.log.gz</code>" in text
    with_text = page.get(PAGE, params={"until": "2026-01-01T00:01:00Z", "find": "x", "pods": "0-1"}).text
    assert "None of the newest 20,000 lines of each pod is from before that time and has this text." in with_text


@pytest.mark.parametrize(("uid", "shown"), [("uid-flux", True), ("uid-other", False)])
def test_what_an_output_has_kept_is_shown_where_it_is_this_very_jobs(
    *, api: FakeApi, access: LinkAuthenticator, tmp_path: Path, uid: str, shown: bool
) -> None:
    job(api, phase="Succeeded", completionTime="2026-01-01T00:00:00Z")
    logs = tmp_path / "flux" / HISTORY / "logs/1-uidflu"
    logs.mkdir(parents=True)
    (logs / "0.log.gz").write_bytes(gzip.compress(b"2026-01-01T00:00:01Z out kept line\n"))
    (tmp_path / "flux" / OWNER).write_text(Owner(job_uid=uid, attempt=1).to_json())
    app = build(Settings(outputs=(Mount(folder=tmp_path),)), access)
    with TestClient(app, base_url="http://127.0.0.1:8270", follow_redirects=False) as page:
        page.get(access.link)
        assert ("kept line" in page.get(PAGE).text) is shown


def test_an_older_attempt_of_a_job_that_runs_is_read_from_what_its_output_has_kept(
    api: FakeApi, access: LinkAuthenticator, tmp_path: Path
) -> None:
    job(api, attempt=3)
    api.add_pod("flux", 2, 0, "2026-01-01T00:00:02Z still there\n", state="terminated")
    logs = tmp_path / "flux" / HISTORY / "logs/1-uidflu"
    logs.mkdir(parents=True)
    (logs / "1.log.gz").write_bytes(gzip.compress(b"2026-01-01T00:00:01Z out kept line\n"))
    (tmp_path / "flux" / OWNER).write_text(Owner(job_uid="uid-flux", attempt=3).to_json())
    app = build(Settings(outputs=(Mount(folder=tmp_path),)), access)
    with TestClient(app, base_url="http://127.0.0.1:8270", follow_redirects=False) as page:
        page.get(access.link)
        assert "kept line" in page.get(PAGE, params={"attempt": "1", "pods": "1"}).text
        assert "kept line" in page.get(PAGE, params={"attempt": "1", "ranks": "1"}).text, "as older links have it"
        assert "still there" in page.get(PAGE, params={"attempt": "2"}).text, (
            "what it has not kept is asked of the pods"
        )


def test_a_job_that_is_not_there_has_no_logs(page: TestClient) -> None:
    assert page.get(PAGE).status_code == 404
