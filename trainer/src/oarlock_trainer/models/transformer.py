"""Loading a transformer of diffusers: no weight is drawn, kept twice or read in full by every rank.

The module is made without memory, and each tensor goes from the mapped file to its device. All ranks of a node map the
same pages, so the node reads its storage once, one rank ahead of the others, and holds the weights in the page cache
instead of eight times. Tensors come one after another: who cuts each into shares as it comes never has the whole model.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.families import family_in
from oarlock_trainer.models.family import TRANSFORMER
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.read_ahead import read_ahead, room

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    import torch
    from torch import Tensor, nn


def load(
    model: Path,
    *,
    device: torch.device | str = "cpu",
    blank: bool = False,
    placed: Callable[[nn.Parameter], None] = lambda _parameter: None,
    reads: bool = True,
    ahead: bool = False,
) -> nn.Module:
    """The transformer in bfloat16, in training mode, as diffusers computes it: `tuning.tune` makes it fast.

    `blank`: weights of zero, for who overwrites them all with a checkpoint's. `placed` is called with each parameter once
    it is on the device, before the next one is read, and may keep less of it. Without `reads` the parameters come in the same
    order with any values, for whom `placed` brings another rank's. `ahead`: it reads ahead for its node what it reads.
    Buffers that are saved with the weights come from the model's files in any case; those that are not are None, for the
    family's `install` to compute.
    """
    import torch  # noqa: PLC0415

    folder = model / TRANSFORMER
    with loading(folder):
        transformer = empty(model)
        files = sorted(folder.glob("*.safetensors"))
        if blank:
            shapes = [(name, parameter.shape) for name, parameter in transformer.named_parameters()]
            zeros = ((name, torch.zeros(shape, device=device, dtype=torch.bfloat16)) for name, shape in shapes)
            _fill(transformer, chain(zeros, saved_buffers(model, device=device).items()), placed)
        elif files:
            with read_ahead(files, room=room()) if reads and ahead else nullcontext():
                _fill(transformer, _tensors(files, device, reads=reads, always=_buffers(transformer)), placed)
        else:
            transformer = imported(family_in(model).transformer).from_pretrained(
                folder, dtype=torch.bfloat16, local_files_only=True, low_cpu_mem_usage=False
            )
    transformer.to(device)
    transformer.train()
    transformer.requires_grad_(requires_grad=True)
    result: nn.Module = transformer
    return result


def empty(model: Path) -> Any:
    """The transformer without memory for its weights (torch's meta device)."""
    import torch  # noqa: PLC0415

    kind = imported(family_in(model).transformer)
    with torch.device("meta"):
        return kind.from_config(kind.load_config(model / TRANSFORMER, local_files_only=True))


def saved_buffers(model: Path, *, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """What is saved with the transformer's weights and is not trained, such as a table of positions, as bfloat16."""
    import torch  # noqa: PLC0415
    from safetensors import safe_open  # noqa: PLC0415

    names, files = _buffers(empty(model)), sorted((model / TRANSFORMER).glob("*.safetensors"))
    if names and not files:
        return {name: one for name, one in load(model, device=device).state_dict().items() if name in names}
    found: dict[str, Tensor] = {}
    for path in files if names else ():
        with safe_open(path, framework="pt", device=str(device)) as file:
            found |= {name: file.get_tensor(name).to(torch.bfloat16) for name in names.keys() & set(file.keys())}
    return found


def _buffers(transformer: nn.Module) -> dict[str, tuple[int, ...]]:
    """Name -> shape."""
    trained = dict(transformer.named_parameters())
    return {name: tuple(one.shape) for name, one in transformer.state_dict().items() if name not in trained}


def _tensors(
    files: Iterable[Path], device: torch.device | str, *, reads: bool, always: Collection[str]
) -> Iterator[tuple[str, Tensor]]:
    import torch  # noqa: PLC0415
    from safetensors import safe_open  # noqa: PLC0415

    for path in files:
        with safe_open(path, framework="pt", device=str(device)) as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                if reads or name in always:
                    yield name, file.get_tensor(name)
                else:
                    yield name, torch.empty(file.get_slice(name).get_shape(), dtype=torch.bfloat16, device=device)


def _fill(
    transformer: nn.Module, weights: Iterable[tuple[str, Tensor]], placed: Callable[[nn.Parameter], None]
) -> None:
    """Make these tensors the module's parameters and buffers, as bfloat16.

    Raises ValueError where they are others than it has.
    """
    import torch  # noqa: PLC0415

    saved = _buffers(transformer)
    expected = {name: tuple(parameter.shape) for name, parameter in transformer.named_parameters()} | saved
    found = {}
    for name, weight in weights:
        found[name] = tuple(weight.shape)
        if expected.get(name) == weight.shape:
            owner, _, own_name = name.rpartition(".")
            if name in saved:
                transformer.get_submodule(owner).register_buffer(own_name, weight.to(torch.bfloat16))
                continue
            parameter = torch.nn.Parameter(weight.to(torch.bfloat16))
            transformer.get_submodule(owner).register_parameter(own_name, parameter)
            placed(parameter)
    for module in transformer.modules():  # what is on the meta device still could not be moved
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_meta:
                module.register_buffer(name, None, persistent=False)
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        one = wrong[0]
        raise ValueError(
            f"{len(wrong)} weights are not those of its config.json, such as {one}: "
            f"{found.get(one, ()) or 'missing'} instead of {expected.get(one, ()) or 'none'}"
        )
