"""Who did it: each action leaves the name of the one who asked for it, as the API server knows him.

The name stands in an annotation that comes with the very change, so that there is none without it, and in an Event beside
the operator's own, where he may create Events. Both are written as him and say no more than his rights vouch for: whoever may
patch a job may write another name there. The API server's audit log is the proof (docs/decisions/0058).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from oarlock.checked_name import checked_name
from oarlock.cluster import Cluster
from oarlock.errors import ForbiddenError, OarlockError
from oarlock.parts import part
from oarlock_api.contract.asked_by import ASKED_BY_ANNOTATION, AskedBy
from oarlock_api.contract.wire import text

MOST_CHARACTERS, MOST_MESSAGE = 256, 1000
"""Of a person's name, which an identity provider chooses; of an Event's message: 1,024 bytes are taken."""
CLUSTER_WIDE = "default"
"""Where Events about objects lie that are in no namespace, as Kubernetes' own do."""
_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
log = logging.getLogger("oarlock.web")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One person, asking for one thing. `what` is a word such as Suspend."""

    cluster: Cluster
    person: str
    what: str

    def metadata(self, uid: str) -> dict[str, Any]:
        """What a change adds to an object's metadata: the name; and the uid, so that no other object is changed."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        asked = AskedBy(action=self.what, by=self.person, time=now)
        return {"annotations": {ASKED_BY_ANNOTATION: asked.to_annotation()}, **({"uid": uid} if uid else {})}

    def event(self, about: Mapping[str, Any], outcome: str, message: str, *, warning: bool = False) -> str:
        """Write an Event about an object. Returns why there is none, empty where there is."""
        metadata, now = part(about, "metadata"), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name, namespace = text(metadata.get("name")), text(metadata.get("namespace"))
        regarding = {"apiVersion": about.get("apiVersion"), "kind": about.get("kind"), "name": name}
        regarding |= {"uid": text(metadata.get("uid")), **({"namespace": namespace} if namespace else {})}
        within = checked_name(namespace or CLUSTER_WIDE, "namespace")
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": within},
            "involvedObject": regarding,
            "type": "Warning" if warning else "Normal",
            "reason": f"{self.what}{outcome}",
            "message": message.encode()[:MOST_MESSAGE].decode(errors="ignore"),
            "action": self.what,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "oarlock-web"},
            "reportingComponent": "oarlock.dev/web",
            "reportingInstance": "oarlock-web",
        }
        try:
            self.cluster.create(f"/api/v1/namespaces/{within}/events", body)
        except OarlockError as error:
            log.warning("no Event %s about %s: %s", body["reason"], name, error)
            return str(error)
        return ""


def sign(cluster: Cluster, what: str) -> Signature:
    """The signature of the one whose requests these are. Raises ForbiddenError where the API server does not name him."""
    answer = cluster.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", dict(_REVIEW))
    person = text(part(part(answer, "status"), "userInfo").get("username"), MOST_CHARACTERS)
    if not person:
        raise ForbiddenError("the cluster does not say who you are, and nothing is done without a name")
    return Signature(cluster=cluster, person=person, what=what)
