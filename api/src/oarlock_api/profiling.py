"""A look at where the time and the memory of some steps go."""

from typing import Annotated

from pydantic import Field, StrictInt

from oarlock_api.group import Group
from oarlock_api.primitives import Step


class Profile(Group):
    """Steps that are recorded, in every attempt."""

    steps: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        description="Optimizer steps that are recorded; a trace takes megabytes a step and rank."
    )
    after: Step = Field(default=10, description="Steps of the attempt before the first of them.")
