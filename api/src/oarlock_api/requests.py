"""The part of the status that answers requests, and says how long a save at an eviction takes."""

from enum import StrEnum

from pydantic import Field

from oarlock_api.contract.requests import RequestState
from oarlock_api.group import StatusGroup
from oarlock_api.primitives import Text, Time
from oarlock_api.progress import ShortText


class RequestStatus(StatusGroup):
    """What the annotation oarlock.dev/request asked, and what came of it. One at a time."""

    id: ShortText = Field(description="The request's id. One that stands here is not carried out again.")
    verb: ShortText | None = Field(
        default=None, description="save, drill or stacks; absent where it could not be read."
    )
    state: ShortText = Field(description=f"{', '.join(RequestState)}; may gain values.")
    attempt: int | None = Field(default=None, description="The attempt that was asked.")
    request_time: Time | None = Field(default=None, description="When the operator took it.")
    end_time: Time | None = Field(default=None, description="When its end was known.")
    step: int | None = Field(default=None, description="Step of the checkpoint that was made.")
    seconds: float | None = Field(default=None, description="Seconds until that checkpoint was valid.")
    message: Text | None = Field(default=None, description="Why it was refused, or failed.")


class MeasuredBy(StrEnum):
    """What a readiness was measured by."""

    DRILL = "Drill"
    EVICTION = "Eviction"


class EvictionReadiness(StatusGroup):
    """How long a save takes whose pod is told to go, beside the time that it is given."""

    seconds_needed: float = Field(
        description="From the notice to a valid checkpoint; of an eviction, until the ranks had ended."
    )
    grace_seconds: int = Field(description="pod.terminationGracePeriodSeconds, at that time.")
    measure_time: Time = Field(description="When it was measured.")
    attempt: int | None = Field(default=None, description="The attempt.")
    step: int | None = Field(default=None, description="Step of the checkpoint.")
    by: ShortText = Field(description="Drill, or Eviction: pods that really were told to go, for whatever reason.")
