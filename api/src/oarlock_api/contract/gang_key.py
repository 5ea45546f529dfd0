"""The key of a gang: what its pods and the operator know, and nobody else in the pod network. Pure, and for Python 3.10.

    operator's key -> key of a job, in a Secret that its pods mount -> key of an attempt: what everything is signed with

Each follows from the one before by HMAC-SHA256, so nothing has to be kept but the first, a restart makes and deletes
nothing, and who knows one attempt's key knows no other job's. A gang of one node needs none.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qs

KEY_PATH = "/etc/oarlock/key"
KEY_FIELD = "key"
"""The one field of the Secret, and the name of its file in a pod."""
SECRET_TYPE = "oarlock.dev/gang-key"  # noqa: S105 - no secret
LEAST_BYTES = 32
"""Of the operator's key: as many as HMAC-SHA256 gives."""
FRESH_SECONDS = 300
"""How far the clocks of the operator and of a pod may be apart, and how long a question can be asked again."""
MAX_QUERY = 1024
_PROOFS = {"request": "asks", "ended": "tells", "surge": "makes"}
"""What a question says besides -> the field that has the proof of it."""
_REFUSES = "this pod answers those who know the key of its gang"
REFUSED = (
    f"{_REFUSES}: the operator, the gang's own pods and whoever asks from within the pod, as kubectl port-forward does "
    "(kubectl port-forward POD 9400, then curl localhost:9400/status). The job says the same: kubectl get tj JOB -o yaml has "
    "status.progress, latestCheckpoint and conditions\n"
)
"""What a pod says, with 403, to a question that is not signed, or with another key. kubectl shows no body of a 401."""


def mac(key: bytes, *parts: str | bytes | int) -> bytes:
    """HMAC-SHA256 over the parts, each with its length, so that no two lists of parts are the same bytes."""
    message = b""
    for part in parts:
        body = part if isinstance(part, bytes) else str(part).encode()
        message += len(body).to_bytes(8, "big") + body
    return hmac.new(key, message, hashlib.sha256).digest()


def job_key(master: bytes, job_uid: str) -> bytes:
    """The key of a job, from the operator's."""
    return mac(master, "oarlock job", job_uid)


def attempt_key(key: bytes, job_uid: str, attempt: int) -> bytes:
    """The key of an attempt, from the job's."""
    return mac(key, "oarlock attempt", job_uid, attempt)


def fingerprint(key: bytes) -> str:
    """Eight characters that tell a job's key from another one, and nothing else about it."""
    return mac(key, "oarlock fingerprint").hex()[:8]


def question(
    key: bytes, path: str, *, pod_uid: str, now: float, request: str = "", ended: str = "", surge: str = ""
) -> str:
    """A path with the proof that whoever asks for it now, of that pod, knows the key.

    Besides, each with a proof of its own: a request, the pods whose end was seen, and the surge pods that are made
    (contract.rounds: words_of_ended, words_of_surge). An agent of an earlier release reads the question, and leaves those out
    that it does not know.
    """
    at = int(now)
    asked = f"{path}?at={at}&proof={_asks(key, path, pod_uid, at).hex()}"
    for field, said in (("request", request), ("ended", ended), ("surge", surge)):
        if said:
            asked += f"&{field}={said}&{_PROOFS[field]}={_says(key, field, said, pod_uid, at).hex()}"
    return asked


def asked_by_one_of_us(key: bytes, target: str, *, pod_uid: str, now: float) -> bool:
    """Whether a request's target is a question that was signed with the key, for this pod, a short while ago."""
    path, _, query = target.partition("?")
    fields = parse_qs(query[:MAX_QUERY])
    at, proof = (fields.get(name, [""])[0] for name in ("at", "proof"))
    if not _is_time(at) or abs(now - int(at)) > FRESH_SECONDS:
        return False
    return hmac.compare_digest(_asks(key, path, pod_uid, int(at)).hex().encode(), proof.encode())


def requested(key: bytes, target: str, *, pod_uid: str) -> str:
    """What is requested with a question that `asked_by_one_of_us` has proven; empty where that has no proof of its own."""
    return _proven(key, target, pod_uid, "request")


def told_to_have_ended(key: bytes, target: str, *, pod_uid: str) -> str:
    """The pods whose end was seen, by a question that `asked_by_one_of_us` has proven; empty where that has no proof."""
    return _proven(key, target, pod_uid, "ended")


def told_of_surge(key: bytes, target: str, *, pod_uid: str) -> str:
    """The surge pods that are made, by a question that `asked_by_one_of_us` has proven; empty where that has no proof."""
    return _proven(key, target, pod_uid, "surge")


def asked_at(target: str) -> int:
    """When a question was asked that `asked_by_one_of_us` has proven, in seconds since the epoch by who asked; else 0."""
    at = parse_qs(target.partition("?")[2][:MAX_QUERY]).get("at", [""])[0]
    return int(at) if _is_time(at) else 0


def _proven(key: bytes, target: str, pod_uid: str, field: str) -> str:
    fields = parse_qs(target.partition("?")[2][:MAX_QUERY])
    at, said, proof = (fields.get(name, [""])[0] for name in ("at", field, _PROOFS[field]))
    known = _says(key, field, said, pod_uid, int(at)).hex() if _is_time(at) else ""
    return said if known and hmac.compare_digest(known.encode(), proof.encode()) else ""


def _is_time(at: str) -> bool:
    return at.isascii() and at.isdecimal() and len(at) < 16


def answer(key: bytes, target: str, body: str) -> str:
    """A body of one line, and a second line with the proof that it answers this very question."""
    return f"{body}\n{_answers(key, target, body)}\n"


def is_refusal(said: str) -> bool:
    """Whether a pod, of this release or an earlier one, says that it was not asked with its key."""
    return said.startswith(_REFUSES)


def answered(key: bytes, target: str, said: str) -> str | None:
    """The body of an answer that was signed with the key; None where it was not."""
    body, _, proof = said.partition("\n")
    signed = hmac.compare_digest(_answers(key, target, body).encode(), proof.strip().encode())
    return body if signed else None


def _asks(key: bytes, path: str, pod_uid: str, at: int) -> bytes:
    return mac(key, "oarlock question", path, pod_uid, at)


def _says(key: bytes, field: str, said: str, pod_uid: str, at: int) -> bytes:
    return mac(key, f"oarlock {field}", said, pod_uid, at)


def _answers(key: bytes, target: str, body: str) -> str:
    return mac(key, "oarlock answer", target, body).hex()
