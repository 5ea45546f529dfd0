"""What the agents of one gang say to each other: one JSON object a line, at most 1024 bytes. Pure.

    member -> rank 0   hello (first of all), beat, answer, report, leave
    rank 0 -> member   challenge (where the gang has a key), welcome, wait or refused, beat (the answer to each beat), ask,
                       order, lost, left

Where the gang has a key, all that follows the hello is sealed (proof.py). Nothing here can blame a node: of GPUs a report
names only one that survived, and where there is no key the operator does not count it. A reader ignores frames and fields
that it does not know, bounds every value, and never raises, whatever bytes come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.exit_codes import ExitCode
from oarlock_api.contract.rounds import LostPod
from oarlock_api.contract.wire import WireError, encodable, integer, parse_object, text
from oarlock_trainer.agent.link.round_frames import Ordered, order_of, report_of, values_of
from oarlock_trainer.agent.link.words import plain
from oarlock_trainer.agent.rounds.model import FOR_ALL, Report
from oarlock_trainer.agent.rounds.surge import Surging, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
MAX_LINE = 1024
"""Bytes, with the newline."""
FLUSH_SECONDS = 0.4
"""What the others get to read why one leaves: a round trip, with a lost packet sent again."""
PEACEFUL = frozenset({0, 86})
"""Done, and left on request: nobody loses a peer by these. Numbers, as ExitCode's module needs a newer Python."""
_MOST_AT_ONCE = 64
_MAX_PROOF = 64
_MAX_NAME = 64


class Topic(StrEnum):
    """What rank 0's agent may ask the others. One that knows nothing of a topic says nothing."""

    SLOWNESS = "slowness"
    """Why the rank that the question names is slow."""
    STACKS = "stacks"
    """To take the stacks of its ranks; the question names the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Whom a link belongs to, and its pace in seconds: a sign of life every `heartbeat`, lost after `silence`.

    `key` is the attempt's; without one whoever knows job and attempt is believed. `node` is the name of this agent's node.
    `incarnation` is that of this agent's pod. `replaces`: pods that are lost are made anew, one by one, and the others wait.
    `chooses`: not all pods train, so whether the gang ends with one that leaves is for its rounds to say. `surge`: the pod
    before this one still trains.
    """

    job_uid: str
    attempt: int
    rank: int
    nodes: int
    heartbeat: float
    silence: float
    key: bytes | None = None
    node: str = ""
    incarnation: int = 1
    replaces: bool = False
    chooses: bool = False
    surge: bool = False

    def waits_after(self, code: int | None, *, rank: int) -> bool:
        """Whether a peer that leaves with this code, or without a word, is replaced, so that the gang waits for the next."""
        return self.replaces and (code not in FOR_ALL or (self.chooses and rank != 0))


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A peer is gone and the gang with it: the first cause, told once.

    `rank` is the node's rank, one's own where the others gave this pod up, None where the link itself failed. `code` is
    what the peer said that it leaves with, None where it fell silent.
    """

    rank: int | None
    code: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Left:
    """A peer left in peace, done (0) or on request (86)."""

    rank: int
    code: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Rank 0's agent wants to know something. `name` tells this question from others of the topic."""

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent of `rank` says to a question, for people. Which rank that is the reader knows by the connection."""

    topic: str
    name: str
    words: str
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPod(LostPod):
    """A pod that is lost to this agent. `heard_at`: when its last word was read, on this machine's monotonic clock.

    `over`: that word was that none of its ranks is left.
    """

    heard_at: float = field(compare=False)
    over: bool = False


def lost_pod(loss: PeerLost, incarnation: int, *, heard_at: float, over: bool = False) -> MissedPod:
    """The loss of a peer that is replaced, as news. Members do not know which incarnation of rank 0's pod it was: 0."""
    code = int(ExitCode.PEER_LOST) if loss.code is None else loss.code
    rank = loss.rank or 0
    return MissedPod(rank=rank, incarnation=incarnation, code=code, why=loss.why, heard_at=heard_at, over=over)


News = PeerLost | MissedPod | Left | Ask | Answer | Report | Ordered | Surging | Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who connects. `agent` is drawn by chance once per agent: it tells a reconnect from a second agent of that rank.

    `incarnation` is its pod's: a later one takes the place of those before, where the gang's pods are replaced. `nonce` and
    `proof`, the answer to rank 0's challenge, are empty where the gang has no key.
    """

    job_uid: str
    attempt: int
    rank: int
    agent: str
    version: int = VERSION
    nonce: str = ""
    proof: str = ""
    node: str = ""
    """Its node's name, for people alone: no proof covers it."""
    incarnation: int = 1
    surge: bool = False
    """It is ready, and waits until the pod of its rank before it has left."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """Rank 0's first words where the gang has a key: whoever says hello is to prove for this nonce that it knows it."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The hello was accepted: silence counts from here."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The hello of a surge pod was accepted, and the pod before it is still there: it is answered, and no member yet."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The hello was not accepted, and the connection ends."""

    why: str


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The sender ends with this exit code; None where it named none that exists. `over`: none of its ranks is left."""

    code: int | None
    why: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class AllLeft:
    """Several that left in peace: a big gang that finishes is told in few frames."""

    peers: tuple[Left, ...]


Frame = (
    Hello | Challenge | Welcome | Wait | Refused | Beat | Leave | PeerLost | AllLeft | Ask | Answer | Report | Ordered
)


def encode(frame: Frame) -> bytes:
    """One line; a reason that would make it too long loses its tail."""
    values = values_of(frame) if isinstance(frame, Report | Ordered) else _values(frame)
    long = "words" if isinstance(frame, Answer) else "why"
    while len(line := _line(values)) > MAX_LINE and values.get(long):
        values[long] = values[long][: len(values[long]) * 7 // 8].rstrip()
    return line


def encode_left(peers: list[Left]) -> bytes:
    """As many lines as it takes to name them all."""
    groups = range(0, len(peers), _MOST_AT_ONCE)
    return b"".join(encode(AllLeft(tuple(peers[start : start + _MOST_AT_ONCE]))) for start in groups)


def decode(line: bytes) -> Frame | None:
    """Read one line without its newline, or None for what is no frame. Never raises."""
    if line == _BEAT:
        return Beat()  # nearly every line of a link's life
    try:
        raw = parse_object(line.decode(errors="replace"), max_bytes=MAX_LINE)
    except WireError:
        return None
    read = _READERS.get(text(raw.get("kind")))
    return read(raw) if read else None


def refusal(hello: Hello, gang: Gang) -> str:
    """Why rank 0 of this gang does not accept the hello; empty where it does."""
    if hello.version != VERSION:
        return f"it speaks version {hello.version} of the link, this agent version {VERSION}"
    if hello.job_uid != gang.job_uid:
        return "it belongs to another job"
    if hello.attempt != gang.attempt:
        return f"it belongs to attempt {hello.attempt}, this is attempt {gang.attempt}"
    if not 0 < hello.rank < gang.nodes:
        return f"it says pod {hello.rank}, the members of this gang are 1..{gang.nodes - 1}"
    return ""


class Lines:
    """Cuts a stream into lines, and holds less than one. After a line that is too long nothing more comes."""

    def __init__(self) -> None:
        self._rest = b""
        self.overlong = False
        self.longest = MAX_LINE
        """Bytes, with the newline."""

    def feed(self, received: bytes) -> list[bytes]:
        """The lines that are complete now, without their newlines."""
        if self.overlong:
            return []
        *lines, self._rest = (self._rest + received).split(b"\n")
        for index, line in enumerate((*lines, self._rest)):
            if len(line) >= self.longest:
                self.overlong, self._rest = True, b""
                return lines[:index]
        return lines


def _values(frame: Frame) -> dict[str, Any]:
    match frame:
        case Hello():
            values = _hello_values(frame)
        case Challenge(nonce):
            values = {"kind": "challenge", "nonce": nonce}
        case PeerLost(rank, code, why):
            values = {"kind": "lost", "rank": rank, "code": code, "why": plain(why)}
        case Leave(code, why, over):
            values = {"kind": "leave", "code": code, "why": plain(why)} | ({"over": True} if over else {})
        case AllLeft(peers):
            values = {"kind": "left", "peers": [[peer.rank, peer.code] for peer in peers]}
        case Ask(topic, name):
            values = {"kind": "ask", "topic": topic, "name": name}
        case Answer(topic, name, words):
            values = {"kind": "answer", "topic": topic, "name": name, "words": plain(words)}
        case Refused(why):
            values = {"kind": "refused", "why": plain(why)}
        case Welcome() | Wait() | Beat():
            values = {"kind": type(frame).__name__.lower()}
    return values


def _hello_values(hello: Hello) -> dict[str, Any]:
    values = {"kind": "hello", "version": hello.version, "jobUid": hello.job_uid, "attempt": hello.attempt}
    values |= {"rank": hello.rank, "agent": hello.agent} | ({"node": hello.node} if hello.node else {})
    values |= {"incarnation": hello.incarnation} if hello.incarnation > 1 else {}
    values |= {"surge": True} if hello.surge else {}
    return values | ({"nonce": hello.nonce, "proof": hello.proof} if hello.proof else {})


def _line(values: dict[str, Any]) -> bytes:
    return encodable(json.dumps(values, ensure_ascii=False, separators=(",", ":"))).encode() + b"\n"


_BEAT = encode(Beat()).rstrip()


def _hello(raw: dict[str, Any]) -> Hello | None:
    attempt, rank, version = (integer(raw.get(name)) for name in ("attempt", "rank", "version"))
    job_uid, agent = (text(raw.get(name), MAX_LINE) for name in ("jobUid", "agent"))
    if attempt is None or rank is None or version is None or not job_uid or not agent:
        return None
    nonce, proof = (text(raw.get(name), _MAX_PROOF) for name in ("nonce", "proof"))
    who = {"job_uid": job_uid, "agent": agent, "nonce": nonce, "proof": proof, "node": text(raw.get("node"), 253)}
    incarnation = max(integer(raw.get("incarnation")) or 1, 1)
    surge = raw.get("surge") is True
    return Hello(attempt=attempt, rank=rank, version=version, incarnation=incarnation, surge=surge, **who)


def _all_left(raw: dict[str, Any]) -> AllLeft:
    peers = raw.get("peers")
    pairs = [pair for pair in peers if isinstance(pair, list) and len(pair) == 2] if isinstance(peers, list) else []
    read = [(_rank(rank), _code(code)) for rank, code in pairs]
    return AllLeft(tuple(Left(rank, code) for rank, code in read if rank is not None and code is not None))


def _rank(raw: object) -> int | None:
    rank = integer(raw)
    return rank if rank is not None and rank >= 0 else None


def _code(raw: object) -> int | None:
    code = integer(raw)
    return code if code is not None and 0 <= code < 256 else None


def _question(raw: dict[str, Any]) -> tuple[str, str]:
    return text(raw.get("topic"), _MAX_NAME), text(raw.get("name"), _MAX_NAME)


def _why(raw: dict[str, Any]) -> str:
    return plain(text(raw.get("why"), MAX_LINE))


_READERS: dict[str, Callable[[dict[str, Any]], Frame | None]] = {
    "hello": _hello,
    "challenge": lambda raw: Challenge(text(raw.get("nonce"), _MAX_PROOF)),
    "welcome": lambda _: Welcome(),
    "wait": lambda _: Wait(),
    "refused": lambda raw: Refused(_why(raw)),
    "beat": lambda _: Beat(),
    "leave": lambda raw: Leave(_code(raw.get("code")), _why(raw), over=raw.get("over") is True),
    "lost": lambda raw: PeerLost(_rank(raw.get("rank")), _code(raw.get("code")), _why(raw)),
    "left": _all_left,
    "ask": lambda raw: Ask(*_question(raw)),
    "report": report_of,
    "order": order_of,
    "answer": lambda raw: Answer(*_question(raw), plain(text(raw.get("words"), MAX_LINE))),
}
