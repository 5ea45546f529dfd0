"""An engine around another one: what it does not change is the other's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from oarlock_trainer.engine.engine import Engine, TensorSlice


class Judged:
    """An engine whose weights are exported as others than those that are trained; see engine.Engine for its methods."""

    def __init__(self, engine: Engine) -> None:
        """`engine` trains."""
        self._engine = engine

    @property
    def model(self) -> nn.Module:
        """The engine's."""
        return self._engine.model

    @property
    def weights(self) -> nn.Module:
        """The engine's: the weights themselves, not what is exported."""
        return self._engine.weights

    @property
    def updates(self) -> int:
        """The engine's."""
        return self._engine.updates

    @property
    def rate_factor(self) -> float:
        """The engine's."""
        return self._engine.rate_factor

    @property
    def skipped(self) -> int:
        """The engine's."""
        return self._engine.skipped

    def backward(self, loss: Tensor) -> None:
        """The engine's."""
        self._engine.backward(loss)

    def step(self, learning_rate: float) -> None:
        """The engine's."""
        self._engine.step(learning_rate)

    def gradient_norm(self) -> float | None:
        """The engine's."""
        return self._engine.gradient_norm()

    def parts(self) -> Sequence[TensorSlice]:
        """The engine's."""
        return self._engine.parts()

    def refresh(self) -> None:
        """The engine's."""
        self._engine.refresh()

    def restored(self, updates: int, parts: Sequence[TensorSlice]) -> None:
        """The engine's."""
        self._engine.restored(updates, parts)

    def exchange(self) -> None:
        """Let the trained weights and the exported ones change places; the optimizer's state stays. Collective."""
        raise NotImplementedError


@contextmanager
def judged(engine: Engine) -> Iterator[nn.Module]:
    """The module that is trained, which within this has the weights that are exported.

    Collective at both ends. What is raised within must end the run: the weights are not brought back then, because ranks that
    are gone would be waited for.
    """
    if isinstance(engine, Judged):
        engine.exchange()
    yield engine.weights
    if isinstance(engine, Judged):
        engine.exchange()
