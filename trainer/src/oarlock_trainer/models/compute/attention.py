"""Which kernel computes attention: chosen once for a job, and looked at when it ran.

A kernel that cannot take a call is not replaced in silence: its operator is called itself. torch's switches for kernels
are left alone, for they are the whole process's, and the thread that makes batches runs networks of its own meanwhile.

Auto is FlashAttention 2. Where text is masked a GPU always runs the memory-efficient kernel: the gradients of cuDNN's may
be NaN with a mask and some lengths (pytorch#196678), and torch's own choice on Hopper would be cuDNN's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from oarlock_api.engine import Attention
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_AMPERE, _HOPPER = (8, 0), (9, 0)
_MASKED = frozenset({"cuda"})
"""Devices with a memory-efficient kernel. It reads its bias in pieces of so many values:"""
_ALIGNMENT = 16
_OPERATORS = {
    Attention.CUDNN: "aten::_scaled_dot_product_cudnn_attention",
    Attention.FLASH2: "aten::_scaled_dot_product_flash_attention",
    Attention.FLASH3: "aten::_scaled_dot_product_flash_attention",
}
"""The operator that each one is seen as. FlashAttention 3 takes the place of torch's own behind the same operator."""
_PREFIX = "aten::_scaled_dot_product"


class Attend(Protocol):
    """Attention over all tokens of a sequence."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Query (B, S, H, D), key and value (B, T, H, D) -> (B, S, H x D) in their type.

        mask (B, 1, 1, T) bool, True where a key is seen. T is S but where one stream attends to another.
        """


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
    if masked:
        raise ConfigurationError(
            f"training.attention: {setting} is not for masks, which objective.attentionMask asks for, and some families "
            "always: set training.attention to Auto"
        )
    capability = torch.cuda.get_device_capability(device)
    if setting is Attention.FLASH3:
        _activate_flash3(capability)
    return setting


def attend_with(kernel: Attention) -> Attend:
    """What the blocks call. SDPA is torch's own choice; so is what is masked, but on GPUs."""
    chosen = _KERNELS.get(kernel, _any)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        heads = (query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        if mask is None:
            seen = chosen(*heads)
        elif query.device.type in _MASKED:
            seen = _efficient(*heads, bias=_bias(mask, heads[0]))
        else:
            seen = scaled_dot_product_attention(*heads, attn_mask=mask)
        return seen.transpose(1, 2).flatten(2)

    return attend


def _automatic(device: torch.device, *, masked: bool) -> Attention:
    if device.type != "cuda" or masked:
        return Attention.SDPA
    return Attention.FLASH2 if torch.cuda.get_device_capability(device) >= _AMPERE else Attention.SDPA


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


def _any(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, value)


# (B, H, S, D) and twice (B, H, T, D) -> (B, H, S, D). Called as torch's scaled_dot_product_attention calls them; the second
# argument after the bias keeps what the backward pass needs.


def _cudnn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen: Tensor = _aten._scaled_dot_product_cudnn_attention(query, key, value, None, True)[0]  # noqa: SLF001, FBT003
    return seen


def _flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen: Tensor = _aten._scaled_dot_product_flash_attention(query, key, value)[0]  # noqa: SLF001
    return seen


def _efficient(query: Tensor, key: Tensor, value: Tensor, *, bias: Tensor) -> Tensor:
    seen: Tensor = _aten._scaled_dot_product_efficient_attention(query, key, value, bias, True)[0]  # noqa: SLF001, FBT003
    return seen


_aten = torch.ops.aten
_KERNELS = {Attention.CUDNN: _cudnn, Attention.FLASH2: _flash, Attention.FLASH3: _flash}


def _bias(mask: Tensor, query: Tensor) -> Tensor:
    """(B, 1, 1, T) bool -> what is added to the scores of (B, H, S, D) queries: (B, H, S, T), in the memory of (B, T).

    In the queries' type. It is filled, not indexed: how many are masked would have to be read back from the GPU.
    """
    tokens = mask.shape[-1]
    hidden = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    aligned = pad(hidden, (0, _ALIGNMENT - tokens % _ALIGNMENT))[..., :tokens]
    return aligned.expand(-1, query.shape[1], query.shape[2], -1)


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of fused attention operators that torch dispatches to, and tells where one refuses."""

    def __init__(self, kernel: Attention) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        self._kernel = kernel

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name()
        if not name.startswith(_PREFIX):
            return func(*args, **kwargs or {})
        if not name.endswith("_backward"):
            self.names.add(name)
        try:
            return func(*args, **kwargs or {})
        except (torch.OutOfMemoryError, torch.AcceleratorError):  # the GPU's, or an earlier call's
            raise
        except RuntimeError as error:
            why = str(error).partition("\n")[0]
            raise ConfigurationError(
                f"training.attention: {self._kernel} does not take this model's queries on this GPU ({why}): set "
                "training.attention to Auto or SDPA"
            ) from error


def assert_ran(kernel: Attention, run: Callable[[], None]) -> str:
    """Run a step, in which nothing is compiled, and return the name of the attention operator that it used.

    Raises ConfigurationError where that is not the chosen kernel, or where that cannot take the step.
    """
    with _Seen(kernel) as seen:
        run()
    wanted = _OPERATORS.get(kernel)
    if not seen.names or (wanted and {wanted} != seen.names):
        raise ConfigurationError(
            f"training.attention: {kernel} was to run, {', '.join(sorted(seen.names)) or 'no fused kernel'} did: set "
            "training.attention to SDPA, and tell us with the GPU and the versions of torch and its driver"
        )
    return wanted or min(seen.names)
