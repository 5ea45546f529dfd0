"""Which kernel computes attention: chosen once for a job, and looked at when it ran.

A kernel that cannot take a call is not replaced in silence: torch is allowed the chosen one alone. Auto is cuDNN's on
Hopper and newer GPUs, FlashAttention 2 on older ones; with a text mask, and on the CPU, it is torch's own choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from oarlock_api.engine import Attention
from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_HOPPER = (9, 0)
_BACKENDS = {
    Attention.CUDNN: SDPBackend.CUDNN_ATTENTION,
    Attention.FLASH2: SDPBackend.FLASH_ATTENTION,
    Attention.FLASH3: SDPBackend.FLASH_ATTENTION,
}
_OPERATORS = {
    Attention.CUDNN: "aten::_scaled_dot_product_cudnn_attention",
    Attention.FLASH2: "aten::_scaled_dot_product_flash_attention",
    Attention.FLASH3: "aten::_scaled_dot_product_flash_attention",
}
"""The operator that each one is seen as. FlashAttention 3 takes the place of torch's own behind the same operator."""
_PREFIX = "aten::_scaled_dot_product"


class Attend(Protocol):
    """Attention over all tokens."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, H, D) three times, mask (B, 1, 1, S) bool, True where a key is seen -> (B, S, H x D)."""


def choose(setting: Attention, *, device: torch.device, masked: bool) -> Attention:
    """The kernel for training.attention on this rank's device, never Auto. `masked`: padding of the text is masked.

    Raises ConfigurationError where it is not there.
    """
    if setting is Attention.AUTO:
        return _automatic(device, masked=masked)
    if setting is Attention.SDPA:
        return setting
    if device.type != "cuda":
        raise ConfigurationError(f"training.attention: {setting} needs a GPU: set training.attention to Auto")
    if masked and setting is not Attention.CUDNN:
        raise ConfigurationError(
            f"training.attention: {setting} takes no mask, which objective.attentionMask asks for: set "
            "training.attention to Auto, or objective.attentionMask to false"
        )
    capability = torch.cuda.get_device_capability(device)
    if setting is Attention.FLASH3:
        _activate_flash3(capability)
    return setting


def attend_with(kernel: Attention) -> Attend:
    """What the blocks call. SDPA is torch's own choice."""
    return _only(_BACKENDS[kernel]) if kernel in _BACKENDS else _any


def _automatic(device: torch.device, *, masked: bool) -> Attention:
    if device.type != "cuda" or masked:
        return Attention.SDPA
    return Attention.CUDNN if torch.cuda.get_device_capability(device) >= _HOPPER else Attention.FLASH2


def _activate_flash3(capability: tuple[int, int]) -> None:
    """Have torch call FlashAttention 3 where it would call its own FlashAttention 2."""
    from torch.nn.attention import activate_flash_attention_impl  # noqa: PLC0415 - where nobody asks for it, nobody needs it

    if capability[0] != _HOPPER[0]:
        raise ConfigurationError(
            f"training.attention: Flash3 needs a Hopper GPU (compute capability 9), this one has {capability[0]}: set "
            "training.attention to Auto"
        )
    try:
        activate_flash_attention_impl("FA3")
    except (ImportError, RuntimeError) as error:
        raise ConfigurationError(
            f"training.attention: Flash3 needs the package flash_attn_interface (FlashAttention 3) in the image "
            f"({error}): add it, or set training.attention to Auto"
        ) from error


def _any(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    seen = scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=mask
    )
    return seen.transpose(1, 2).flatten(2)


def _only(backend: SDPBackend) -> Attend:
    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        with sdpa_kernel(backend):  # here, not around the model: recomputed blocks come back in the backward pass
            return _any(query, key, value, mask)

    return attend


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of fused attention operators that torch dispatches to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name()
        if name.startswith(_PREFIX) and not name.endswith("_backward"):
            self.names.add(name)
        return func(*args, **kwargs or {})


def assert_ran(kernel: Attention, run: Callable[[], None]) -> str:
    """Run a step, in which nothing is compiled, and return the name of the attention operator that it used.

    Raises ConfigurationError where that is not the chosen kernel, or where that cannot take the step.
    """
    seen = _Seen()
    try:
        with seen:
            run()
    except RuntimeError as error:
        if "No available kernel" not in str(error):
            raise
        raise ConfigurationError(
            f"training.attention: {kernel} does not take this model's queries on this GPU ({error}): set "
            "training.attention to Auto or SDPA"
        ) from error
    wanted = _OPERATORS.get(kernel)
    if not seen.names or (wanted and {wanted} != seen.names):
        raise ConfigurationError(
            f"training.attention: {kernel} was to run, {', '.join(sorted(seen.names)) or 'no fused kernel'} did: set "
            "training.attention to SDPA, and tell us with the GPU and the versions of torch and its driver"
        )
    return wanted or min(seen.names)
