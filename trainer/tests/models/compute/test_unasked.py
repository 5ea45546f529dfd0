"""What nobody asks gets zeros as its gradient, and what is asked the gradient that it had."""

from __future__ import annotations

from oarlock_trainer.ranks import preload

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled
import torch.utils.checkpoint  # noqa: E402

from oarlock_trainer.models.compute.unasked import beside  # noqa: E402


def test_both_get_a_gradient_also_through_a_recomputed_block() -> None:
    asked, unasked = torch.randn(2, 3, requires_grad=True), torch.randn(4, dtype=torch.bfloat16, requires_grad=True)

    def block(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return beside(one * 2.0, other.square())

    found = torch.utils.checkpoint.checkpoint(block, asked, unasked, use_reentrant=False)
    assert torch.equal(found, asked * 2.0)
    found.sum().backward()
    assert torch.equal(asked.grad, torch.full((2, 3), 2.0))
    assert unasked.grad is not None
    assert unasked.grad.dtype == torch.bfloat16
    assert not unasked.grad.any()


def test_without_gradients_it_is_what_was_asked() -> None:
    asked = torch.randn(2)
    with torch.no_grad():
        assert torch.equal(beside(asked, torch.randn(3)), asked)
