"""Whether a caller may see what the page itself reads for him, from storage that is mounted into its pod.

It is asked of the API server as the caller (SelfSubjectAccessReview, which everybody may create), and again each minute.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from oarlock.errors import ForbiddenError
from oarlock.parts import part
from oarlock.web.ask import Ask

PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ALLOWED_SECONDS = 60.0
MOST_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Right:
    """What a namespace's pods have to allow, as the same takes it while they run."""

    verb: str
    subresource: str
    what: str


LOGS = Right("get", "log", "Logs")
PICTURES = Right("create", "portforward", "Pictures")
"""As the page reads them while a job runs (docs/decisions/0057)."""


class Rights:
    """What was allowed. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: OrderedDict[tuple[str, str, Right], float] = OrderedDict()

    def close(self) -> None:
        """Forget it."""
        self._until.clear()

    def check(self, ask: Ask, right: Right, namespace: str) -> None:
        """Raise ForbiddenError where the caller has not got it, and OarlockError where that cannot be asked."""
        key, now = (ask.caller.identity, namespace, right), time.monotonic()
        with self._lock:
            if self._until.get(key, now) > now:
                return
        wanted = {"namespace": namespace, "verb": right.verb, "resource": "pods", "subresource": right.subresource}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = ask.cluster.create(PATH, {**review, "spec": {"resourceAttributes": wanted}})
        if part(answer, "status").get("allowed") is not True:
            raise ForbiddenError(
                f"{right.what} in an output are for those who may {right.verb} `pods/{right.subresource}` in {namespace}, "
                "as they are while the job runs"
            )
        with self._lock:
            self._until[key] = now + ALLOWED_SECONDS
            if len(self._until) > MOST_KEPT:
                self._until.popitem(last=False)
