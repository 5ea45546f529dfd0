"""A transformer that lies in one .safetensors file, often with its makers' names for the weights, as diffusers has it.

Files come from anywhere: none is unpickled, nothing is fetched for one, and safetensors reads no header above 100 MB.
diffusers' own tables tell the names. They are tried on tensors without memory first, and what comes out must be the base's
transformer, name by name and shape by shape. diffusers' `from_single_file` only warns of what is left over, or says
nothing, and makes the whole model in memory.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.families import family_in
from oarlock_trainer.models.family import ClassName
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.transformer import empty
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, failed_reading, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

SUFFIX = ".safetensors"
_PREFIXES = ("model.diffusion_model.", "diffusion_model.")
"""How the transformer's names begin where ComfyUI wrote them, alone or as a part of a whole checkpoint."""
_KEPT = frozenset({"BF16", "F16", "F32"})
_WIDENED = frozenset({"F8_E4M3", "F8_E5M2"})
"""They become bfloat16, which holds each of their values."""
_ADAPTERS = re.compile(r"^lora_|[._](lora[._](A|B|up|down|mid)|lokr_\w+|hada_\w+|oft_\w+|dora_scale)(\.|$)")
_SCALES = frozenset(
    {"scaled_fp8", "scale_weight", "scale_input", "weight_scale", "weight_scale_2", "input_scale", "comfy_quant"}
)
"""How names end of what quantized weights are to be multiplied with."""
_NAMED = 3
_LONG = 120
"""Characters. Names come from the file, too: a terminal gets no more of them, and nothing that is not for reading."""
_TABLES = ClassName("diffusers.loaders.single_file_model", "SINGLE_FILE_LOADABLE_CLASSES")


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleFile:
    """What a file's header says."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    """Of the transformer's tensors, by their names without the prefix."""
    types: tuple[str, ...]
    """Of these tensors, as safetensors names them."""
    prefix: str
    beside: str
    """What else lies in the file, in words: the first parts of names, such as vae; empty where nothing does."""

    @property
    def is_widened(self) -> bool:
        """Whether weights become bfloat16 that are narrower in the file."""
        return bool(_WIDENED.intersection(self.types))


def look_at(path: Path) -> SingleFile:
    """Read a file's header.

    Raises ConfigurationError where it is no file of whole weights in floating point, and StorageError.
    """
    if path.suffix != SUFFIX:
        raise ConfigurationError(
            f"{path} is no {SUFFIX} file, and no other is read: a pickle (.ckpt, .pt, .pth, .bin) runs whatever program "
            f"somebody put into it, and other formats hold quantized weights. Take the model as {SUFFIX}"
        )
    with _opened(path) as file:
        header = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        described = {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in header.items()}
    prefix = next((one for one in _PREFIXES if any(name.startswith(one) for name in described)), "")
    own = {name.removeprefix(prefix): one for name, one in described.items() if name.startswith(prefix)}
    beside = sorted({name.partition(".")[0] for name in described if not name.startswith(prefix)})
    found = SingleFile(
        path=path,
        shapes={name: shape for name, (_, shape) in own.items()},
        types=tuple(sorted({kind for kind, _ in own.values()})),
        prefix=prefix,
        beside=_some(beside) if beside else "",
    )
    _refuse_other_contents(found)
    return found


def weights(found: SingleFile, base: Path, *, field: str) -> dict[str, Tensor]:
    """The transformer of `base`, which `field` names, with the file's weights: diffusers' names -> tensors, in its order.

    They are read from the mapped file when they are used, but for those that diffusers puts together anew, and keep their
    types. Raises ConfigurationError where they are not all that the base's transformer has, in its shapes; and StorageError.
    """
    family = family_in(base, field)
    with loading(base):
        model = empty(base)
    expected = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    kind = family.transformer.name
    convert = partial(imported(_TABLES)[kind]["checkpoint_mapping_fn"], config=dict(model.config))
    rename = _way(found, expected, convert, base=f"{base}, whose transformer is {family.name}'s {kind}")
    with _opened(found.path) as file:
        renamed = rename({name: _widened(file.get_tensor(found.prefix + name)) for name in found.shapes})
    return {name: renamed[name] for name in expected}


def _refuse_other_contents(found: SingleFile) -> None:
    named = f"{found.path}: "
    if adapters := [name for name in found.shapes if _ADAPTERS.search(name)]:
        raise ConfigurationError(
            f"{named}it holds adapters ({_some(adapters)}), and no model: name the model that they are for in "
            "training.model and begin with them by training.initFrom, or let the program that made them merge them into it"
        )
    if scales := [name for name in found.shapes if name.rpartition(".")[2] in _SCALES]:
        raise ConfigurationError(
            f"{named}its weights are quantized, with scales beside them ({_some(scales)}): take the file in bfloat16"
        )
    if others := sorted(set(found.types) - _KEPT - _WIDENED):
        raise ConfigurationError(
            f"{named}it has tensors of the type {', '.join(others)}, which are quantized weights or none: take the file in "
            "bfloat16, float16 or float32"
        )


def _way(
    found: SingleFile, expected: Mapping[str, Sequence[int]], convert: Callable[..., Any], *, base: str
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """How the file's tensors get diffusers' names: they have them, or `convert` gives them."""
    import torch  # noqa: PLC0415

    as_they_are = _Misfit.between(found.shapes, expected)
    if not as_they_are.total:
        return lambda tensors: tensors
    try:
        sketch = {name: torch.empty(shape, device="meta") for name, shape in found.shapes.items()}
        converted = {name: tuple(one.shape) for name, one in _converted(sketch, convert).items()}
    except Exception as stumble:  # noqa: BLE001 - whatever a table does with names that it is not for
        if as_they_are.fits > len(expected) // 2:
            _refuse(found, as_they_are.words, base)
        _refuse(
            found,
            f"diffusers cannot name its weights ({_shown(repr(stumble))}), which are {_some(list(found.shapes))}",
            base,
        )
    misfit = min(_Misfit.between(converted, expected), as_they_are, key=lambda one: one.total)
    if misfit.total:
        _refuse(found, misfit.words, base)
    return partial(_converted, convert=convert)


def _converted(tensors: dict[str, Tensor], convert: Callable[..., Any]) -> dict[str, Tensor]:
    """By diffusers' table, beside what it leaves."""
    rest = dict(tensors)
    named: dict[str, Tensor] = convert(checkpoint=rest)
    return named if named is rest else rest | named


def _refuse(found: SingleFile, words: str, base: str) -> NoReturn:
    raise ConfigurationError(
        f"{found.path} does not fit {base}: {words}. Name the model that it was made from as the base, and a file that "
        "holds the whole transformer"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Misfit:
    """What speaks against tensors as the weights of a transformer."""

    missing: list[str]
    reshaped: list[str]
    surplus: list[str]
    fits: int

    @classmethod
    def between(cls, shapes: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]]) -> _Misfit:
        reshaped = [name for name in expected if name in shapes and shapes[name] != expected[name]]
        missing = [name for name in expected if name not in shapes]
        return cls(
            missing=missing,
            reshaped=[f"{name}: {_shape(shapes[name])} instead of {_shape(expected[name])}" for name in reshaped],
            surplus=[name for name in shapes if name not in expected],
            fits=len(expected) - len(missing) - len(reshaped),
        )

    @property
    def total(self) -> int:
        return len(self.missing) + len(self.reshaped) + len(self.surplus)

    @property
    def words(self) -> str:
        told = [(self.missing, "missing"), (self.reshaped, "of another shape"), (self.surplus, "none of its weights")]
        return ", ".join(f"{len(names)} are {how} ({_some(names)})" for names, how in told if names)


def _widened(tensor: Tensor) -> Tensor:
    import torch  # noqa: PLC0415

    return tensor.to(torch.bfloat16) if tensor.element_size() == 1 else tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - brings torch

    try:
        with readable("FILE", path.parent):
            path.open("rb").close()  # safetensors says less of what stands in the way
            with safe_open(path, framework="pt", device="cpu") as file:
                yield file
    except SafetensorError as error:
        raise ConfigurationError(f"{path} is damaged, or no {SUFFIX} file: {error}") from error
    except OSError as error:
        if failed_reading(error):
            raise StorageError(f"reading {path}: {error}") from error
        raise ConfigurationError(f"{path} is no file here: name the {SUFFIX} file") from error


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "a number"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(map(_shown, names[:_NAMED])) or "none") + more


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= _LONG else f"{name[:_LONG]!a}..."
