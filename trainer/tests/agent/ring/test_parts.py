"""Parts of a node's memory that another node's agent copies: only whole ones count, and only the gang's own may have any."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_process import free_port
from keeping import CONTENT, KEY, OF, content, keep

from oarlock_api.contract import gang_key
from oarlock_trainer.agent.ring import parts_server
from oarlock_trainer.agent.ring import peer as peers
from oarlock_trainer.agent.ring import pull as pulling
from oarlock_trainer.agent.ring.parts_server import ADDRESSEE, PartsServer, manifest_path, steps_path
from oarlock_trainer.agent.ring.peer import Peer, PeerError
from oarlock_trainer.agent.ring.pull import Begun, NoRoomError, StoppedError, part_of, pull
from oarlock_trainer.agent.status.status_server import StatusServer
from oarlock_trainer.checkpoint.memory.files import RankFiles
from oarlock_trainer.checkpoint.memory.held import state_name, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


ANY = range(1, 10)
LOOK_UP = socket.getaddrinfo


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def server(there: Path) -> PartsServer:
    return PartsServer(there, KEY, node=0, ranks_per_node=1)


@pytest.fixture
def port(server: PartsServer) -> int:
    return serve(server)


@pytest.fixture
def peer(port: int) -> Peer:
    return Peer(0, ("127.0.0.1", port), KEY)


class Names:
    """What stands for the network's names: all addresses of one, and how often they were looked up."""

    def __init__(self, *ports: int) -> None:
        self.ports, self.asked = ports, 0

    def __call__(self, host: str, port: int, *more: Any, **options: Any) -> list[Any]:
        if host != "flux-0.flux":
            return LOOK_UP(host, port, *more, **options)
        self.asked += 1
        return [(2, 1, 6, "", ("127.0.0.1", port)) for port in self.ports]


def named(monkeypatch: pytest.MonkeyPatch, *ports: int) -> tuple[Peer, Names]:
    names = Names(*ports)
    monkeypatch.setattr(peers.socket, "getaddrinfo", names)
    return Peer(0, ("flux-0.flux", 1), KEY), names


def serve(server: PartsServer) -> int:
    status: Any = None
    return StatusServer(port=0, job="flux", status=lambda: status, alive=lambda: True, parts=server).port


def copy(peer: Any, here: Path, step: int, *, rank: int = 0, **options: Any) -> None:
    part = part_of(peer.manifest(step, rank, world=2), **OF, step=step, rank=rank, world=2, rounds=ANY)
    files = RankFiles(here, rank)
    files.claim(keep=options.get("keep"))
    pull(peer, part, files, here, rank=rank, **{"keep": None, "share": 1.0, **options})


def test_a_part_comes_over_whole_piece_by_piece(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_server, "PIECE", 1000)
    keep(there, 7)
    assert peer.steps(0) == (0, [(7, 2)])
    copy(peer, here, 7)
    assert content(here, 7) == CONTENT
    assert here.stat().st_mode & 0o777 == 0o700


def test_what_lies_in_the_other_slot_there_is_named_by_where_it_lies_here(peer: Peer, there: Path, here: Path) -> None:
    keep(there, 7, slot=1)
    copy(peer, here, 7)
    assert content(here, 7) == (here / state_name(0, 0)).read_bytes() == CONTENT


def test_a_name_is_looked_up_once_for_a_whole_copy(
    port: int, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_server, "PIECE", 1000)
    keep(there, 7)
    peer, names = named(monkeypatch, port)
    assert peer.steps(0) == (0, [(7, 2)])
    copy(peer, here, 7)
    assert (content(here, 7), names.asked) == (CONTENT, 1)


def test_of_two_pods_under_one_name_the_one_in_the_later_round_is_copied_from(
    server: PartsServer, port: int, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PartsServer(there.with_name("old"), KEY, node=0, ranks_per_node=1)
    keep(there.with_name("old"), 7, content=b"old")
    keep(there, 7)
    old.round, server.round = 1, 2
    peer, _ = named(monkeypatch, port, serve(old))
    assert peer.steps(0) == (2, [(7, 2)])
    copy(peer, here, 7)
    assert content(here, 7) == CONTENT
    old.round = 3
    assert peer.steps(0) == (3, [(7, 2)]), "whichever of both it is"


def test_an_address_at_which_nobody_answers_or_without_the_key_is_passed_over(
    server: PartsServer, port: int, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = serve(PartsServer(there, b"x" * 32, node=0, ranks_per_node=1))
    keep(there, 7)
    server.round = 3
    peer, _ = named(monkeypatch, free_port(), stranger, port)
    assert peer.steps(0) == (3, [(7, 2)])
    alone, _ = named(monkeypatch, stranger)
    with pytest.raises(PeerError, match="403"):
        alone.steps(0)
    nobody, _ = named(monkeypatch)
    with pytest.raises(PeerError, match="no address"):
        nobody.steps(0)


def test_a_pod_that_is_in_the_round_that_is_asked_for_keeps_the_others_from_being_asked(
    server: PartsServer, port: int, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(there, 7)
    server.round = 3
    peer, names = named(monkeypatch, port, free_port())
    assert peer.steps(0, round_=3) == (3, [(7, 2)])
    names.ports = names.ports[::-1]
    asked: list[Any] = []
    ask = peer._ask
    monkeypatch.setattr(peer, "_ask", lambda *told: asked.append(told) or ask(*told))
    assert peer.steps(0, round_=3) == (3, [(7, 2)])
    assert len(asked) == 1, "the one that answered last is asked first"


def test_the_step_to_keep_is_never_written_over(peer: Peer, there: Path, here: Path) -> None:
    keep(here, 3, slot=0, content=b"three")
    keep(here, 5, slot=1, content=b"five")
    keep(there, 7)
    files = RankFiles(here, 0)
    files._slot_of, files._worlds = {3: 0, 5: 1}, {3: 2, 5: 2}
    part = part_of(peer.manifest(7, 0, world=2), **OF, step=7, rank=0, world=2, rounds=ANY)
    pull(peer, part, files, here, rank=0, keep=3, share=1.0)
    assert steps_of(here, 0) == [7, 3]
    assert content(here, 3) == b"three"


def test_a_part_that_is_written_anew_meanwhile_counts_nowhere(peer: Peer, there: Path, here: Path) -> None:
    keep(there, 7)
    raw = peer.manifest(7, 0, world=2)
    (there / state_name(0, 0)).write_bytes(CONTENT[::-1])
    files = RankFiles(here, 0)
    files.claim(keep=None)
    with pytest.raises(PeerError, match="written anew"):
        pull(peer, part_of(raw, **OF, step=7, rank=0, world=2, rounds=ANY), files, here, rank=0, keep=None, share=1.0)
    assert steps_of(here, 0) == []


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_stopped_at_any_moment_a_copy_counts_nowhere(
    peer: Peer, there: Path, here: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_server, "PIECE", 16_000)  # two pieces
    keep(there, 7)
    left = [None] * (calls - 1)

    @contextmanager
    def only_while() -> Iterator[None]:
        if not left:
            raise StoppedError
        left.pop()
        yield

    with pytest.raises(StoppedError):
        copy(peer, here, 7, only_while=only_while)
    assert steps_of(here, 0) == []


def test_more_than_the_room_is_never_taken(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(there, 7)
    monkeypatch.setattr(pulling.cgroup, "free_memory", lambda: len(CONTENT) - 1)
    with pytest.raises(NoRoomError, match=r"raise spec\.pod\.sharedMemory"):
        copy(peer, here, 7)
    assert not list(here.iterdir())


class Failing:
    """A peer that fails once, at its second piece, and tells which ones it was asked for."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.asked: list[int] = []

    def piece(self, name: str, offset: int) -> bytes:
        self.asked.append(offset)
        if len(self.asked) == 2:
            raise PeerError("the network broke")
        return self._peer.piece(name, offset)


def test_after_a_failed_request_only_what_is_not_there_yet_is_asked_for(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_server, "PIECE", 10_000)
    keep(there, 7)
    part = part_of(peer.manifest(7, 0, world=2), **OF, step=7, rank=0, world=2, rounds=ANY)
    files, begun = RankFiles(here, 0), Begun()
    files.claim(keep=None)
    failing: Any = Failing(peer)
    with pytest.raises(PeerError, match="broke"):
        pull(failing, part, files, here, rank=0, keep=None, share=1.0, begun=begun)
    pull(failing, part, files, here, rank=0, keep=None, share=1.0, begun=begun)
    assert failing.asked == [0, 10_000, 10_000, 20_000]
    assert content(here, 7) == CONTENT


def test_what_was_copied_of_another_part_or_has_gone_since_is_copied_anew(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_server, "PIECE", 10_000)
    keep(there, 7)
    part = part_of(peer.manifest(7, 0, world=2), **OF, step=7, rank=0, world=2, rounds=ANY)
    files, begun = RankFiles(here, 0), Begun()
    files.claim(keep=None)
    failing: Any = Failing(peer)
    with pytest.raises(PeerError, match="broke"):
        pull(failing, part, files, here, rank=0, keep=None, share=1.0, begun=begun)
    (here / state_name(0, 0)).unlink()
    with pytest.raises(PeerError, match="written anew"):
        pull(failing, part, files, here, rank=0, keep=None, share=1.0, begun=begun)
    keep(there, 8, content=CONTENT[::-1])
    part = part_of(peer.manifest(8, 0, world=2), **OF, step=8, rank=0, world=2, rounds=ANY)
    pull(failing, part, files, here, rank=0, keep=None, share=1.0, begun=begun)
    assert content(here, 8) == CONTENT[::-1]


def test_the_state_that_stays_beside_the_copy_is_no_room_for_it(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(here, 3, slot=0)
    keep(there, 7)
    monkeypatch.setattr(pulling.cgroup, "free_memory", lambda: len(CONTENT) - 1)
    with pytest.raises(NoRoomError):
        copy(peer, here, 7, keep=3)
    assert steps_of(here, 0) == [3]
    (here / state_name(0, 1)).write_bytes(CONTENT)  # of a copy before: it is written over
    copy(peer, here, 7, keep=3)
    assert steps_of(here, 0) == [7, 3]


def test_copying_leaves_the_link_to_others_for_most_of_the_time(
    peer: Peer, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(100))
    monkeypatch.setattr(pulling, "time", SimpleNamespace(monotonic=lambda: float(next(now))))
    pauses: list[float] = []
    keep(there, 7)
    copy(peer, here, 7, share=0.25, pause=pauses.append)
    assert pauses == [3.0]


@pytest.mark.parametrize("wrong", [{"job_uid": "other"}, {"attempt": 2}, {"step": 8}, {"files": []}, {"runs": {}}])
def test_what_is_of_another_run_or_no_manifest_is_refused(peer: Peer, there: Path, wrong: dict[str, Any]) -> None:
    keep(there, 7)
    raw = peer.manifest(7, 0, world=2) | wrong
    with pytest.raises(PeerError):
        part_of(raw, **OF, step=7, rank=0, world=2, rounds=ANY)


@pytest.mark.parametrize("round_", [1, 3, "2", None])
def test_a_part_of_a_round_that_does_not_count_is_refused(peer: Peer, there: Path, round_: Any) -> None:
    keep(there, 7)
    raw = peer.manifest(7, 0, world=2) | {"round": round_}
    with pytest.raises(PeerError, match="round"):
        part_of(raw, **OF, step=7, rank=0, world=2, rounds=range(2, 3))
    assert part_of(raw | {"round": 2}, **OF, step=7, rank=0, world=2, rounds=range(2, 3)).size == len(CONTENT)


@pytest.mark.parametrize("name", ["rank-00001-0.state", "../../etc/passwd", "rank-00000-3.state", 3])
def test_a_manifest_that_names_another_file_is_refused(peer: Peer, there: Path, name: Any) -> None:
    keep(there, 7)
    raw = peer.manifest(7, 0, world=2)
    raw["files"][0]["name"] = name
    raw["runs"] = {name: []}
    with pytest.raises(PeerError):
        part_of(raw, **OF, step=7, rank=0, world=2, rounds=ANY)


def test_strangers_get_nothing_and_are_not_believed(port: int, there: Path) -> None:
    keep(there, 7)
    with pytest.raises(PeerError, match="403"):
        Peer(0, ("127.0.0.1", port), b"x" * 32).steps(0)


def _signed(path: str, *, key: bytes = KEY, addressee: str = ADDRESSEE, seconds_ago: float = 0.0) -> str:
    return gang_key.question(key, path, pod_uid=addressee, now=time.time() - seconds_ago)


def asked(server: PartsServer, target: str) -> int:
    """The code of its answer, in a thread that ends with it: who answers steps back behind all else, for good."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(server.answer, target).result().code


@pytest.mark.parametrize(
    ("path", "signed", "code"),
    [
        (steps_path(0, 0), None, 403),
        (steps_path(0, 0), {"seconds_ago": 1e6}, 403),
        (steps_path(0, 0), {"addressee": "uid-of-pod"}, 403),
        (steps_path(1, 0), {}, 404),
        (manifest_path(0, 8, 0, world=2), {}, 404),
        ("/memory/0/state/0/0", {}, 404),
        ("/memory/0/state/0/7/0", {}, 404),
        ("/memory/0/state/../../0", {}, 404),
    ],
)
def test_only_signed_questions_for_this_very_node_and_what_it_has_are_answered(
    server: PartsServer, there: Path, path: str, signed: dict[str, Any] | None, code: int
) -> None:
    keep(there, 7)
    # Signed now, and not when the tests were collected: a signature is as good as it is fresh.
    assert asked(server, path if signed is None else _signed(path, **signed)) == code


def test_a_link_in_the_folder_leads_nowhere(server: PartsServer, there: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    there.mkdir()
    (there / state_name(0, 0)).symlink_to(secret)
    assert asked(server, _signed("/memory/0/state/0/0/0")) == 404
