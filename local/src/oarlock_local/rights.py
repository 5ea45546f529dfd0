"""What roles grant and what somebody asked for, in the same words, so that the two can be compared.

Asked is read from the API server's audit log: what the server itself made of each request, the refused ones too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERYWHERE = ""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource. A name or namespace that is empty is any."""

    group: str
    resource: str
    verb: str
    namespace: str = EVERYWHERE
    name: str = ""

    def covers(self, other: Right) -> bool:
        """Whether who has this right may do `other`."""
        same = (self.group, self.resource, self.verb) == (other.group, other.resource, other.verb)
        return same and self.namespace in (EVERYWHERE, other.namespace) and self.name in ("", other.name)


def granted(objects: Iterable[dict[str, Any]], account: str) -> set[Right]:
    """The rights that the roles among `objects` give to the ServiceAccount `account`, by their bindings."""
    known = list(objects)
    found: set[Right] = set()
    for binding in known:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        namespace = binding["metadata"].get("namespace", EVERYWHERE)
        reference = binding["roleRef"]
        role = next(
            role
            for role in known
            if (role["kind"], role["metadata"]["name"]) == (reference["kind"], reference["name"])
            and role["metadata"].get("namespace", namespace) == namespace
        )
        found |= set(_of_rules(role["rules"], namespace))
    return found


def _of_rules(rules: Iterable[dict[str, Any]], namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(group, resource, verb, namespace, name)


def asked(audit_log: Path, account: str) -> set[Right]:
    """What the ServiceAccount `account` asked of the API server, but for the review of its own rights."""
    found: set[Right] = set()
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        about = event.get("objectRef")
        if event["user"]["username"] != account or about is None or about["resource"] == "selfsubjectaccessreviews":
            continue
        resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
        found.add(
            Right(
                group=about.get("apiGroup", ""),
                resource=resource,
                verb=event["verb"],
                namespace=about.get("namespace", EVERYWHERE),
                name=about.get("name", ""),
            )
        )
    return found


def never_used(have: set[Right], want: set[Right]) -> set[Right]:
    """Rights that nothing was asked for."""
    return {right for right in have if not any(right.covers(wish) for wish in want)}


def not_had(have: set[Right], want: set[Right]) -> set[Right]:
    """What was asked for without a right to it, whatever the namespace and name."""
    return {
        Right(wish.group, wish.resource, wish.verb) for wish in want if not any(right.covers(wish) for right in have)
    }
