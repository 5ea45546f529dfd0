"""Weights & Biases: one run a job, which every attempt goes on with. Needs the package wandb.

W&B takes no step twice, so the step is a figure of its own, which the others are drawn over: where an attempt did steps
again, both stand there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oarlock_trainer.tracking.tracker import RunFacts

_KEY, _ENTITY = "WANDB_API_KEY", "WANDB_ENTITY"
_FINISH_SECONDS = 20.0


class WandbRun:
    """An open run. WANDB_MODE=offline in the pod's environment keeps it below the output, for `wandb sync`."""

    def __init__(self, facts: RunFacts) -> None:
        """Opens or goes on with the run. May need a minute; raises what wandb raises."""
        import wandb  # noqa: PLC0415 - takes a second, and not every image has it

        given = {"api_key": facts.secrets.get(_KEY), "base_url": facts.url, "entity": facts.secrets.get(_ENTITY)}
        settings = wandb.Settings(
            console="off",  # the pod's log is the pod's
            silent=True,
            disable_git=True,
            finish_timeout=_FINISH_SECONDS,
            **{name: value for name, value in given.items() if value},
        )
        self._run = wandb.init(
            project=facts.project,
            name=facts.name,
            id=facts.identity,
            resume="allow",
            dir=facts.output,
            config=dict(facts.settings),
            allow_val_change=True,
            reinit="create_new",
            settings=settings,
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Hand a step to wandb, which sends it in its own time."""
        self._run.log({"step": step, **figures})

    def close(self, *, done: bool) -> None:
        """Send the rest. A run that is not done shows as failed until the next attempt goes on with it."""
        self._run.finish(exit_code=0 if done else 1)
