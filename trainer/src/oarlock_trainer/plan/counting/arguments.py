"""What a transformer's forward pass is called with, as data, and the tensors that such a description makes.

A description is a mapping from names of arguments to what they are. Sizes in it are whole numbers, names of `Shapes`, or keys
of the model's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Size = int | str

LATENTS_A_TOKEN = 2
"""A token is 2 x 2 latent pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Sizes of one call; the image is a rectangle of tokens, and a video has several of them."""

    rows: int
    columns: int
    text: int
    batch: int = 1
    frames: int = 1

    @property
    def image(self) -> int:
        """Tokens of a picture or a video."""
        return self.frames * self.rows * self.columns

    def named(self) -> dict[str, int]:
        """All sizes by the names that descriptions may use."""
        return {
            "batch": self.batch,
            "frames": self.frames,
            "rows": self.rows,
            "columns": self.columns,
            "latent_rows": LATENTS_A_TOKEN * self.rows,
            "latent_columns": LATENTS_A_TOKEN * self.columns,
            "image": self.image,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor of this shape; in the weights' type, unless `dtype` names another one of torch's."""

    shape: tuple[Size, ...]
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Whole numbers themselves, as a tuple."""

    of: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A list with one of these for each sample of the batch."""

    of: Part


@dataclass(frozen=True, slots=True)
class One:
    """A list of one."""

    of: Part


@dataclass(frozen=True, slots=True)
class Where:
    """Given only where this key of the configuration is true."""

    key: str
    of: Part


Part = Values | Sizes | Each | One | Where
Description = Mapping[str, Part]


def call_arguments(
    description: Description,
    shapes: Shapes,
    config: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Arguments of a forward pass that returns a tuple. Raises ValueError where a size is in neither place.

    Values are random, or of no memory on the meta device; whole numbers are zeros.
    """
    known: dict[str, Any] = {**config, **shapes.named()}

    def size(one: Size) -> int:
        if isinstance(one, int):
            return one
        if not isinstance(known.get(one), int):
            raise ValueError(  # noqa: TRY004 - of a configuration that is a file, not of an argument
                f"{one!r} is no size of {sorted(shapes.named())}, nor a whole number of the configuration"
            )
        return int(known[one])

    def made(part: Part) -> Any:
        match part:
            case Values(shape, named):
                return _tensor(tuple(map(size, shape)), named, device=device, dtype=dtype)
            case Sizes(of):
                return tuple(map(size, of))
            case Each(of):
                return [made(of) for _ in range(shapes.batch)]
            case One(of):
                return [made(of)]
            case Where(_, of):
                return made(of)

    given = {
        name: made(part) for name, part in description.items() if not isinstance(part, Where) or known.get(part.key)
    }
    return {**given, "return_dict": False}


def _tensor(shape: tuple[int, ...], named: str | None, *, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    import torch  # noqa: PLC0415 - descriptions are data, for those without torch too

    wanted: torch.dtype = getattr(torch, named) if named else dtype
    if wanted.is_floating_point:
        return torch.rand(shape, device=device, dtype=torch.float32).to(wanted)
    return torch.zeros(shape, device=device, dtype=wanted)
