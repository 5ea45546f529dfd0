"""`oarlock logs -f` where stamps, connections, pods and the API server are not as one would like them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ended import Oarlock
from fake_api import JOBS, FakeApi

from oarlock import Client, followed_logs
from oarlock.cluster import MAX_LINE, Lines
from oarlock.cluster import connect as connect_cluster
from oarlock.errors import ForbiddenError, RefusedError
from oarlock.followed_logs import Follower
from oarlock.logs import LogLine, Wanted
from oarlock.pod_logs import Pod, log_line
from oarlock_local import patience
from oarlock_local.patience import eventually

JOB = f"{JOBS.format('default')}/flux"
PODS = "/api/v1/namespaces/default/pods"
LOG = f"{PODS}/flux-1-0/log"
END = "2026-01-01T00:01:00Z"
POD = Pod(
    name="flux-1-0",
    namespace="default",
    uid="u",
    job_uid="j",
    attempt=1,
    rank=0,
    incarnation=1,
    started=True,
    ended=False,
    waits="",
)
Answer = tuple[int, Any]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_logs, "LOOK_SECONDS", 0.01)


@pytest.fixture
def job(api: FakeApi) -> dict[str, Any]:
    """A job that runs, in its first attempt."""
    return api.add_job("flux", status={"attempt": 1, "phase": "Running"})


def follow(each: Callable[[LogLine], object] = lambda _: None) -> list[LogLine]:
    lines = []
    for line in Client().job("flux").logs(follow=True):
        lines.append(line)
        each(line)
    return lines


def texts(lines: list[LogLine], kind: str = "line") -> list[str]:
    return [line.text for line in lines if line.kind == kind]


def readers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "log of flux-1-0"]


def interposed(api: FakeApi, monkeypatch: pytest.MonkeyPatch, refused: Callable[[str], Answer | None]) -> None:
    """Have what `refused` says of a path answered in the API server's place."""
    answer = api.answer

    def instead(method: str, path: str, body: Any) -> Answer:
        return refused(path.partition("?")[0]) or answer(method, path, body)

    monkeypatch.setattr(api, "answer", instead)


def test_lines_whose_stamps_step_back_are_all_there_and_none_twice(api: FakeApi, job: dict[str, Any]) -> None:
    pod = api.add_pod("flux", 1, 0, "2026-01-01T00:00:03.000003Z out\n2026-01-01T00:00:03.000001Z err\n")

    def each(line: LogLine) -> None:
        if line.text == "err":
            api.logs[LOG] += b"2026-01-01T00:00:03.5Z later\n2026-01-01T00:00:03.4Z back\n2026-01-01T00:00:03.9Z end\n"
        if line.text == "end":
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {}}
            job["status"]["completionTime"] = END

    assert texts(follow(each)) == ["out", "err", "later", "back", "end"]


def test_what_the_kubelet_says_itself_is_a_line_and_does_not_stop_the_others(api: FakeApi, job: dict[str, Any]) -> None:
    said = "failed to create fsnotify watcher: too many open files"
    pod = api.add_pod("flux", 1, 0, f"2026-01-01T00:00:01Z first\n{said}\n")

    def each(line: LogLine) -> None:
        if line.text.endswith("files"):
            api.logs[LOG] = b"2026-01-01T00:00:02Z second\n"
        if line.text == "second":
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {}}
            job["status"]["completionTime"] = END

    assert texts(follow(each)) == ["first", said, "second"]
    assert not [path for _, path, _ in api.asked if "sinceTime=failed" in path]


@pytest.mark.parametrize(
    ("raw", "time", "text"),
    [
        (b"2026-01-01T00:00:01.5Z a b\r", "2026-01-01T00:00:01.5Z", "a b"),
        (b"2026-01-01T02:00:01.000000005+02:00 x", "2026-01-01T00:00:01.000000005Z", "x"),
        (b"2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z", ""),
        (b"2026-99-99T99:99:99Z x", "", "2026-99-99T99:99:99Z x"),
        (b"unable to retrieve container logs", "", "unable to retrieve container logs"),
    ],
)
def test_a_stamp_is_read_in_utc_and_a_line_without_one_is_text(raw: bytes, time: str, text: str) -> None:
    line = log_line(POD, raw)
    assert (line.time, line.text) == (time, text)


@pytest.mark.usefixtures("job")
def test_who_may_not_read_logs_is_told_and_does_not_wait(api: FakeApi, oarlock: Oarlock) -> None:
    api.add_pod("flux", 1, 0, "")
    api.refusals[LOG] = (403, "pods/log is forbidden")
    ended = oarlock("logs", "flux", "-f")
    assert ended.code == 5
    assert "pods/log is forbidden" in ended.err


def test_an_ended_pod_that_cannot_be_read_is_told_and_left(api: FakeApi, job: dict[str, Any]) -> None:
    api.add_pod("flux", 1, 0, "", state="terminated")
    api.refusals[LOG] = (500, "the node is off")
    job["status"]["completionTime"] = END
    notes = texts(follow(), "note")
    assert "flux-1-0 cannot be read after its start: the node is off" in notes


def test_a_log_that_never_ends_does_not_hold_up_the_end(
    api: FakeApi, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_logs, "REST_SECONDS", 0.1)
    api.add_pod("flux", 1, 0, "", state="terminated")
    job["status"]["completionTime"] = END
    done = threading.Event()

    def held(path: str) -> None:
        if path == LOG:
            done.wait()

    interposed(api, monkeypatch, held)
    assert texts(follow(), "note")[-1] == "not read to its end, for nothing came any more: log of flux-1-0"
    (reader,) = readers()
    done.set()
    reader.join(patience.SECONDS)


@pytest.mark.usefixtures("api")
def test_connections_are_kept_alive_so_that_a_dead_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        kept.append(self.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    connect_cluster().get("/api/v1/namespaces/default")
    assert kept == [1]


def test_a_reader_outlives_an_api_server_that_refuses_for_a_while(
    api: FakeApi, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z first\n")
    logs = 0

    def refused(path: str) -> Answer | None:
        """From when the log was read until it is read again."""
        nonlocal logs
        logs += path == LOG
        if logs == 2:
            api.logs[LOG] = b"2026-01-01T00:00:02Z second\n"
        return (503, {"message": "later"}) if path == PODS and logs == 1 else None

    interposed(api, monkeypatch, refused)

    def each(line: LogLine) -> None:
        if line.text == "second":
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {}}
            job["status"]["completionTime"] = END

    lines = follow(each)
    assert texts(lines) == ["first", "second"]
    assert texts(lines, "note") == ["attempt 1 prints", "later; trying again for 300 seconds"]


def test_an_api_server_that_stays_away_is_an_error_in_the_end(
    api: FakeApi, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_logs, "PATIENCE_SECONDS", 0.05)
    del job["status"]["phase"]

    def each(_: LogLine) -> None:
        api.refusals[JOB] = (503, "gone for good")

    with pytest.raises(RefusedError, match="gone for good"):
        follow(each)


@pytest.mark.usefixtures("job")
def test_a_first_look_that_is_refused_is_an_error_at_once(api: FakeApi) -> None:
    api.refusals[JOB] = (503, "not now")
    with pytest.raises(RefusedError, match="not now"):
        follow()
    assert len(api.asked) == 1


def test_pods_of_an_earlier_job_of_that_name_are_not_read(api: FakeApi, job: dict[str, Any], oarlock: Oarlock) -> None:
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z old\n")
    pod = api.add_pod("flux", 1, 1, "2026-01-01T00:00:02Z new\n", state="terminated")
    job["metadata"]["uid"] = pod["metadata"]["labels"]["oarlock.dev/job-uid"] = "uid-2"
    assert oarlock("logs", "flux").out == "2026-01-01T00:00:02Z attempt 1, pod 1: new\n"


def test_a_job_that_was_made_anew_is_told_and_followed(api: FakeApi, job: dict[str, Any]) -> None:
    api.add_pod("flux", 2, 0, "2026-01-01T00:00:01Z old\n", state="terminated")

    def each(line: LogLine) -> None:
        if line.text == "old":
            pod = api.add_pod("flux", 1, 0, "2026-01-01T00:00:02Z new\n", state="terminated")
            pod["metadata"]["labels"]["oarlock.dev/job-uid"] = "uid-2"
            job["metadata"]["uid"] = "uid-2"
            job["status"]["completionTime"] = END

    lines = follow(each)
    assert texts(lines) == ["old", "new"]
    anew = texts(lines, "note").index("flux was deleted and made anew: from here on it is the new one")
    assert texts(lines, "note")[anew + 1] == "attempt 1 prints"


def test_a_log_is_read_no_faster_than_its_lines_are_taken(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_logs, "WAITING_LINES", 2)
    too_much = threading.Event()

    class Cluster:
        """Its log has 100 lines."""

        def items(self, *_: object, **__: object) -> list[Any]:
            return [pod]

        @contextmanager
        def lines(self, *_: object, **__: object) -> Iterator[Iterator[bytes]]:
            yield (self.line(number) for number in range(100))

        def line(self, number: int) -> bytes:
            if number > 10:
                too_much.set()
            return b"2026-01-01T00:00:01Z %d" % number

    pod = api.add_pod("flux", 1, 0, None, state="terminated")
    manifest = {"metadata": {"uid": "uid-flux", "name": "flux"}, "status": {"attempt": 1, "completionTime": END}}
    job: Any = SimpleNamespace(name="flux", namespace="default", manifest=manifest)
    cluster: Any = Cluster()
    follower = Follower(job, cluster, Wanted())
    lines = follower.lines()
    taken = [next(lines), next(lines)]
    eventually(follower._arriving.full, "a reader that has all that it may have, and waits")
    assert not too_much.is_set()
    taken += lines
    assert texts(taken) == [str(number) for number in range(100)]


def test_a_reader_ends_though_nobody_takes_its_lines(
    api: FakeApi, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_logs, "WAITING_LINES", 1)
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z x\n" * 100)
    job["status"]["completionTime"] = END
    lines = Client().job("flux").logs(follow=True)
    assert [next(lines).text, next(lines).text] == ["attempt 1 prints", "x"]
    (reader,) = readers()
    del lines
    reader.join(patience.SECONDS)
    assert not reader.is_alive()


def test_a_line_without_an_end_is_cut() -> None:
    chunks = [b"a\nb", *[b"\r" * 65536] * 40, b"c\nd\n", b"e"]
    whole = b"".join(chunks)
    response = SimpleNamespace(read1=lambda _: chunks.pop(0) if chunks else b"")
    lines = list(Lines(response))
    assert b"".join(lines) == whole.replace(b"\n", b"")
    assert [len(line) // MAX_LINE for line in lines] == [0, 1, 1, 0, 0, 0]


def test_of_some_ranks_alone_the_pods_are_asked_for_and_their_last_lines_cut_to_what_is_wanted(
    api: FakeApi, job: dict[str, Any]
) -> None:
    for rank in range(4):
        api.add_pod("flux", 1, rank, f"2026-01-01T00:00:0{rank}Z rank {rank} says much\n", state="terminated")
    job["status"]["completionTime"] = END
    wanted = Wanted(ranks=frozenset({1, 3}), tail=50, longest=6)
    lines = [
        line.text for line in Follower(Client().job("flux"), connect_cluster(), wanted).lines() if line.kind == "line"
    ]
    assert sorted(lines) == ["rank 1\u2026 (10 more characters)", "rank 3\u2026 (10 more characters)"]
    assert all("rank+in+%281%2C3%29" in path for _, path, _ in api.asked if path.partition("?")[0] == PODS)
    assert all("tailLines=50" in path for _, path, _ in api.asked if "/log?" in path)


def test_a_follower_that_is_ended_ends_and_leaves_no_reader(api: FakeApi, job: dict[str, Any]) -> None:
    assert job["status"]["phase"] == "Running"
    api.add_pod("flux", 1, 0, "2026-01-01T00:00:01Z x\n")
    follower = Follower(Client().job("flux"), connect_cluster(), Wanted())
    lines = follower.lines()
    assert next(line.text for line in lines if line.kind == "line") == "x"
    (reader,) = readers()
    follower.end()
    assert list(lines) == []
    reader.join(patience.SECONDS)
    assert not reader.is_alive()


def test_a_connection_is_ended_after_a_while_and_the_next_goes_on_until_the_right_to_the_log_is_gone(
    api: FakeApi, job: dict[str, Any]
) -> None:
    assert job["status"]["phase"] == "Running"
    first, second = b"2026-01-01T00:00:01Z a\n", b"2026-01-01T00:00:02Z b\n"

    class Open:
        """A log that never ends: what it says comes at once, and of the last line a part."""

        def __init__(self, said: bytes) -> None:
            self._said = [said + b"2026-01-01T00:00:03Z par"]
            self._over = threading.Event()
            self.shutdown = self._over.set

        def read1(self, _: int) -> bytes:
            if self._said:
                return self._said.pop()
            assert self._over.wait(patience.SECONDS)
            raise OSError("it was shut down")

    class Cluster:
        """The right to the log is gone when it is asked for the third time."""

        def __init__(self) -> None:
            self.items = connect_cluster().items
            self.answers = [Open(first), Open(first + second)]

        @contextmanager
        def lines(self, *_: object, **__: object) -> Iterator[Lines]:
            if not self.answers:
                raise ForbiddenError("pods/log is forbidden")
            yield Lines(self.answers.pop(0))

    api.add_pod("flux", 1, 0, None)
    cluster: Any = Cluster()
    follower = Follower(Client().job("flux"), cluster, Wanted(), look_seconds=0.01, connection_seconds=0.05)
    taken: list[LogLine] = []
    with pytest.raises(ForbiddenError):
        taken.extend(follower.lines())
    assert texts(taken) == ["a", "b"]


def test_a_log_that_opens_while_its_reader_is_ended_is_closed(api: FakeApi, job: dict[str, Any]) -> None:
    assert job["status"]["phase"] == "Running"
    follower: list[Follower] = []

    class Late:
        """A cluster whose log begins to answer just when nobody wants it any more, and never ends."""

        def __init__(self) -> None:
            self.items = connect_cluster().items

        @contextmanager
        def lines(self, *_: object, **__: object) -> Iterator[Any]:
            follower[0].end()
            yield iter(lambda: b"2026-01-01T00:00:01Z x", b"")

    api.add_pod("flux", 1, 0, None)
    late: Any = Late()
    follower.append(Follower(Client().job("flux"), late, Wanted()))
    list(follower[0].lines())
    for reader in readers():
        reader.join(patience.SECONDS)
        assert not reader.is_alive()
