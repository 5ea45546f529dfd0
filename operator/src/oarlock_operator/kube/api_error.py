"""What can go wrong with a request to the API server.

ApiError          it said no, or did not answer
Conflict        409: somebody else was faster
NotFound        404 or 410
Malformed       its answer cannot be read
"""

from __future__ import annotations

import json
import re

_DENIED = re.compile(r"\bdenied (the )?request")
"""Words of an admission webhook or policy that says no, whatever code it says it with: most say 400 or 422."""
_NO_WEBHOOK = "failed calling webhook"


class ApiError(Exception):
    """The API server said no, or did not answer (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.creating = False
        """Whether it is about an object that a job needs: then its words are for the job's owner."""

    @property
    def final(self) -> bool:
        """Whether the object can never be, whatever else there is: unreadable, or against the API's own rules."""
        return self.status in (400, 422) and _DENIED.search(self.message) is None

    @property
    def lasting(self) -> bool:
        """Whether somebody has to mend something first: a quota, a policy, a kind that is not served, a webhook."""
        return self.status in (400, 403, 404, 422) or _NO_WEBHOOK in self.message

    @property
    def outage(self) -> bool:
        """Whether the API server is away or unwell, which is over at once when it is back. Too busy (429) is neither."""
        return (self.status == 0 or self.status >= 500) and not self.lasting

    @staticmethod
    def of(status: int, reason: str, message: str) -> ApiError:
        """The error of its kind."""
        kind = {404: NotFound, 410: NotFound, 409: Conflict}.get(status, ApiError)
        return kind(status, reason, message)


class Conflict(ApiError):  # noqa: N818 - the API's own word
    """409: somebody else was faster; look again."""


class NotFound(ApiError):  # noqa: N818
    """404 or 410."""


class Malformed(ApiError):  # noqa: N818
    """The server's answer cannot be read: what it is about helps nobody."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Malformed", message)

    @property
    def outage(self) -> bool:
        """It is there, and will say the same again."""
        return False


def refusal(status: int, answer: str) -> ApiError:
    """The error that an answer tells of."""
    try:
        details = json.loads(answer)
        reason, message = str(details.get("reason", "")), str(details.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", answer[:500]
    return ApiError.of(status, reason, message)
