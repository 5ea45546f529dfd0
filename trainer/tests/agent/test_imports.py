"""The agent's import graph: what it does not load is why it answers at once."""

from __future__ import annotations

import subprocess
import sys


def test_the_agent_loads_neither_torch_nor_anything_else_heavy() -> None:
    code = "import sys, oarlock_trainer.cli, oarlock_trainer.agent.supervise; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "deepspeed", "accelerate", "diffusers", "transformers", "numpy", "pydantic", "yaml", "asyncio"}
    heavy |= {"prometheus_client", "psutil"}
    assert heavy.isdisjoint(loaded)
