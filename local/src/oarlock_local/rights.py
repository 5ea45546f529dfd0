"""What roles grant and what somebody asked for, in the same words, so that the two can be compared.

Asked is read from the API server's audit log: what the server itself made of each request, the refused ones too.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERYWHERE = ""
_OWN_REVIEW = "selfsubjectaccessreviews"
"""Everybody may ask what it may do."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource. A name or namespace that is empty is any."""

    group: str
    resource: str
    verb: str
    namespace: str = EVERYWHERE
    name: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {'.'.join(part for part in (self.resource, self.group) if part)}"

    def covers(self, other: "Right") -> bool:
        """Whether who has this right may do `other`."""
        same = (self.group, self.resource, self.verb) == (other.group, other.resource, other.verb)
        return same and self.namespace in (EVERYWHERE, other.namespace) and self.name in ("", other.name)

    def anywhere(self) -> "Right":
        """The right without its namespace and name, which are often made up."""
        return Right(self.group, self.resource, self.verb)


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


def asked(audit_log: Path, user: str) -> Counter[Right]:
    """What that user asked of the API server and how often, but for the review of its own rights."""
    found: Counter[Right] = Counter()
    seen: set[str] = set()
    # The last line may be half written.
    for line in audit_log.read_text().rpartition("\n")[0].splitlines():
        event = json.loads(line)
        about = event.get("objectRef")
        # A watch stands there twice: when it begins and when it ends.
        if event["user"]["username"] != user or about is None or event["auditID"] in seen:
            continue
        seen.add(event["auditID"])
        if about["resource"] == _OWN_REVIEW:
            continue
        right = Right(
            group=about.get("apiGroup", ""),
            resource="/".join(part for part in (about["resource"], about.get("subresource")) if part),
            verb=event["verb"],
            namespace=about.get("namespace", EVERYWHERE),
            name=about.get("name", ""),
        )
        found[right] += 1
    return found


def users(audit_log: Path, program: str) -> set[str]:
    """As whom a program has asked for anything, by what its requests call it (User-Agent)."""
    lines = audit_log.read_text().rpartition("\n")[0].splitlines()
    return {event["user"]["username"] for event in map(json.loads, lines) if event.get("userAgent") == program}


def never_used(have: Iterable[Right], want: Iterable[Right]) -> set[Right]:
    """Rights that nothing was asked for."""
    wishes = set(want)
    return {right for right in have if not any(right.covers(wish) for wish in wishes)}


def not_had(have: Iterable[Right], want: Counter[Right]) -> Counter[Right]:
    """What was asked for without a right to it, whatever the namespace and name, and how often."""
    rights = set(have)
    found: Counter[Right] = Counter()
    for wish, times in want.items():
        if not any(right.covers(wish) for right in rights):
            found[wish.anywhere()] += times
    return found
