"""Loading the FLUX.1 transformer of diffusers: no weight is drawn, kept twice or read in full by every rank.

The module is made without memory, and each tensor goes from the mapped file to its device. All ranks of a node map the
same pages, so the node reads its storage once, and holds the weights in the page cache instead of eight times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.models.flux.classes import transformer_class
from oarlock_trainer.models.flux.folder import TRANSFORMER, loading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch
    from torch import Tensor, nn


def load(model: Path, *, device: torch.device | str = "cpu", blank: bool = False) -> nn.Module:
    """The transformer in bfloat16, in training mode, as diffusers computes it: `tuning.tune` makes it fast.

    `blank`: weights of zero, for who overwrites them all with a checkpoint's.
    """
    import torch  # noqa: PLC0415

    folder = model / TRANSFORMER
    with loading(folder):
        if blank:
            transformer = empty(model).to(torch.bfloat16).to_empty(device=device)
            for parameter in transformer.parameters():
                parameter.data.zero_()
        elif any(folder.glob("*.safetensors")):
            transformer = empty(model)
            _assign(transformer, {name: tensor.to(torch.bfloat16) for name, tensor in _tensors(folder, device)})
        else:
            transformer = transformer_class().from_pretrained(
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

    flux = transformer_class()
    with torch.device("meta"):
        return flux.from_config(flux.load_config(model / TRANSFORMER, local_files_only=True))


def _tensors(folder: Path, device: torch.device | str) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open  # noqa: PLC0415

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device=str(device)) as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 - no mapping


def _assign(transformer: nn.Module, weights: dict[str, Tensor]) -> None:
    """Make these tensors the module's parameters. Raises ValueError where they are others than it has."""
    expected = {name: parameter.shape for name, parameter in transformer.named_parameters()}
    found = {name: weight.shape for name, weight in weights.items()}
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        one = wrong[0]
        raise ValueError(
            f"{len(wrong)} weights are not those of its config.json, such as {one}: "
            f"{tuple(found.get(one, ())) or 'missing'} instead of {tuple(expected.get(one, ())) or 'none'}"
        )
    transformer.load_state_dict(weights, assign=True)
