"""Pictures from the weights of the moment, made by all ranks together, which never end a run and never hold it for long.

The pictures are dealt out in rounds, one for each rank, the largest first. What goes wrong with a picture (memory, a disk,
values that are not finite) is told and costs this picture. After each round stands the only exchange, which every rank
comes to whatever happened to it: whether somebody was asked to leave, and whether the time is up by rank 0's clock.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oarlock_api.contract.status import PodPhase
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.heartbeat import Heartbeat
from oarlock_trainer.validation.decoding import PictureDecoder
from oarlock_trainer.validation.index import MadeImage, Pictures
from oarlock_trainer.validation.sampling import Guidance, Text, denoise, draw_noise, read_scheduler
from oarlock_trainer.validation.webm import webm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from PIL import Image
    from torch import nn

    from oarlock_trainer.engine.process_group import RankGroup
    from oarlock_trainer.models.architecture import Architecture
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.validation.image_requests import ImageRequest
    from oarlock_trainer.validation.references import References
    from oarlock_trainer.validation.texts import Texts

MOST_SECONDS = 600.0
"""Of one validation. Groups wait 900 s before the first step: a rank without a picture must not lose the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationOutcome:
    """What one validation of all ranks has come to. `failed`: a line for each picture that could not be made."""

    made: list[MadeImage]
    failed: list[str]
    left_out: int
    seconds: float


class _BrokenOffError(Exception):
    """The picture is given up, because there is no time for it."""


class Validation:
    """The pictures of one job."""

    def __init__(
        self,
        job: Job,
        ranks: RankGroup,
        wanted: Sequence[ImageRequest],
        texts: Texts,
        references: References,
        *,
        architecture: Architecture,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is loaded before the first picture."""
        self._ranks = ranks
        self._model = Path(job.training.model.path or "")
        self._family, self._code = family_of(job.training.model), code_of(job.training.model)
        self._wanted = wanted
        self._texts, self._references = texts, references
        self._architecture = architecture
        self._pictures = Pictures(job.output, job_uid=job.file.job_uid)
        self._decoder: PictureDecoder | None = None
        self._clock = clock

    def make(
        self, judged: AbstractContextManager[nn.Module], step: int, *, leaving: Callable[[], bool]
    ) -> ValidationOutcome | None:
        """Make the pictures of a step that are not there yet; None where all are. Collective.

        `judged` gives the transformer, and is entered only where pictures are missing. `leaving` says whether this rank was
        asked to leave: all then stop within a picture's time.
        """
        missing = self._ranks.decide(lambda: self._missing(step))
        if not missing:
            return None
        channel.send(channel.Event.PHASE, name=PodPhase.VALIDATING)
        if self._ranks.rank_info.is_leader:
            due = (self._wanted[number] for number in missing)
            sizes = dict.fromkeys(f"{one.width}x{one.height}" for one in due)
            sys.stderr.write(f"step {step}: drawing {len(missing)} pictures ({', '.join(sizes)})\n")
        began = self._clock()
        with judged as transformer:
            trains = transformer.training
            transformer.eval()
            made, failed = self._rounds(transformer, step, missing, began=began, leaving=leaving)
            transformer.train(trains)
        if self._ranks.device.type == "cuda":
            torch.cuda.empty_cache()  # sizes of pictures that training has no use for
        gathered = self._ranks.gather((made, failed))
        outcome = ValidationOutcome(
            made=(all_made := [one for theirs, _ in gathered for one in theirs]),
            failed=(all_failed := [one for _, theirs in gathered for one in theirs]),
            left_out=len(missing) - len(all_made) - len(all_failed),
            seconds=self._clock() - began,
        )
        if self._ranks.rank_info.is_leader:
            self._record(step, outcome)
        return outcome

    def _missing(self, step: int) -> list[int]:
        """Which pictures are to be made: none where what is there cannot be read. Never raises: others wait for it."""
        try:
            return self._pictures.missing(step, self._wanted)
        except Exception as error:  # noqa: BLE001 - pictures never end a run
            channel.tell(f"no pictures of step {step}: those that are there could not be read ({error})")
            return []

    def _rounds(
        self, transformer: nn.Module, step: int, missing: Sequence[int], *, began: float, leaving: Callable[[], bool]
    ) -> tuple[list[MadeImage], list[str]]:
        """This rank's pictures, and what was wrong with the others of its share."""
        made: list[MadeImage] = []
        failed: list[str] = []
        rank_info, beat = self._ranks.rank_info, Heartbeat()
        mine = missing[rank_info.rank :: rank_info.world_size]

        def go_on() -> None:
            beat()
            if leaving() or self._clock() - began > MOST_SECONDS:
                raise _BrokenOffError

        for done in range(1, math.ceil(len(missing) / rank_info.world_size) + 1):
            for wanted in (self._wanted[number] for number in mine[done - 1 : done]):
                started = self._clock()
                try:
                    file = self._write(step, wanted, self._draw(transformer, wanted, go_on), go_on)
                    made.append(MadeImage(wanted=wanted, file=file, seconds=self._clock() - started))
                except _BrokenOffError:
                    pass  # it is counted as left out
                except Exception as error:  # noqa: BLE001 - a picture is no reason to end a run
                    failed.append(_words(wanted, error))
                    sys.stderr.write(f"step {step}: {failed[-1]}\n")
            with channel.waiting():
                # Whether another round, as long as those before on average, would take too long.
                late = rank_info.is_leader and (self._clock() - began) * (done + 1) / done > MOST_SECONDS
                (ending,) = self._ranks.sum([float(leaving() or late)])
            if ending:
                break
        return made, failed

    def _write(self, step: int, wanted: ImageRequest, frames: Sequence[Image.Image], go_on: Callable[[], None]) -> str:
        video = webm(frames, fps=self._family.fps, go_on=go_on) if wanted.frames else None
        return self._pictures.write(step, wanted, frames[0], video)

    def _draw(self, transformer: nn.Module, wanted: ImageRequest, go_on: Callable[[], None]) -> list[Image.Image]:
        device, reference = self._ranks.device, self._references.read(wanted)
        latents = denoise(
            transformer,
            draw_noise(
                wanted.seed,
                self._family.grid,
                channels=self._architecture.latent_channels,
                width=wanted.width,
                height=wanted.height,
                frames=wanted.frames or 1,
            ).to(device),
            self._text(wanted.prompt, wanted),
            reference=None if reference is None else reference.to(device),
            family=self._family,
            code=self._code,
            guidance=Guidance(
                told=wanted.guidance if self._architecture.has_guidance else None,
                scale=wanted.scale,
                negative=self._text(wanted.negative, wanted),
            ),
            scheduler=read_scheduler(self._model, self._family),
            steps=wanted.steps,
            go_on=go_on,
        )
        if self._decoder is None:
            self._decoder = PictureDecoder(self._model, self._family, device, code=self._code)
        return self._decoder.decode(latents)

    def _text(self, prompt: str, wanted: ImageRequest) -> Text:
        sequence, pooled = self._texts.read(prompt, wanted)
        return Text(sequence=sequence.to(self._ranks.device), pooled=pooled.to(self._ranks.device))

    def _record(self, step: int, outcome: ValidationOutcome) -> None:
        """Write the index, and say in a sentence what has come of it."""
        words = [f"{len(outcome.made)} pictures of step {step} in {outcome.seconds:.1f} s"]
        try:
            if outcome.made:
                self._pictures.add(step, outcome.made)
        except Exception as error:  # noqa: BLE001 - pictures never end a run
            words.append(f"their index or grid could not be written ({error})")
        if outcome.failed:
            words.append(f"{len(outcome.failed)} failed: {', '.join(outcome.failed)}")
        if outcome.left_out:
            words.append(
                f"{outcome.left_out} left out: there was no time for them (asked to leave, or {MOST_SECONDS:.0f} s)"
            )
        channel.tell("; ".join(words))


def _words(wanted: ImageRequest, error: Exception) -> str:
    told = str(error).partition("\n")[0]
    return f"{wanted.file} ({type(error).__name__}{f': {told}' if told else ''})"
