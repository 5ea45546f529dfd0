"""When a run saves, how much it keeps, where it resumes."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from oarlock_api.group import Group
from oarlock_api.location import S3Location
from oarlock_api.rules import Rule, at_most_one


class Resume(StrEnum):
    """Where a run begins."""

    AUTO = "Auto"
    NEVER = "Never"
    REQUIRED = "Required"


class Checkpoint(Group):
    """Checkpoints: asynchronous, atomic, verified."""

    admission: ClassVar[tuple[Rule, ...]] = (
        at_most_one(
            "interval_steps",
            "interval_seconds",
            message="set only one of checkpoint.intervalSteps and checkpoint.intervalSeconds (neither = automatic)",
        ),
    )

    interval_steps: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] | None = Field(
        default=None,
        description="Optimizer steps between checkpoints; absent, without intervalSeconds = automatic, from the "
        "measured cost of a save and the expected time between faults. SimpleTuner: checkpointing_steps.",
    )
    interval_seconds: Annotated[StrictInt, Field(ge=1, le=31_536_000)] | None = Field(
        default=None, description="Seconds between checkpoints."
    )
    keep: Annotated[StrictInt, Field(ge=1, le=1000)] = Field(
        default=5,
        description="Valid checkpoints that are kept; the newest is never deleted. SimpleTuner: "
        "checkpoints_total_limit.",
    )
    resume: Resume = Field(
        default=Resume.AUTO,
        description="Auto = from the newest valid checkpoint, if any; Never = from the start, once (restarts after a "
        "fault resume); Required = fail without one. SimpleTuner: resume_from_checkpoint.",
    )
    upload: S3Location | None = Field(
        default=None, description="Copy each valid checkpoint there, in the background; absent = no copy."
    )
