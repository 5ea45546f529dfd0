"""Python's own hook, on the path of a pod: each step of a job that never ends rests for STEP_PACE seconds.

What a test waits for meanwhile, such as another pod's imports, then has the cores: nobody needs steps by the thousand.
A rank that finds its own number (rank-3) in the folder STEP_TRIPS takes it away, and fails.
"""

import os
import sys
import time
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _Paced:
    """Finds one module, and has it rest in what it calls after each step."""

    name, called = "oarlock_trainer.loop.train", "report"

    def find_spec(self, name: str, path: Any, _target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == self.name else None
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                report = getattr(module, self.called)

                def rest(*arguments: Any, **fields: Any) -> None:
                    report(*arguments, **fields)
                    time.sleep(float(os.environ["STEP_PACE"]))
                    trip = Path(os.environ["STEP_TRIPS"], f"rank-{os.environ['RANK']}")
                    if trip.exists():
                        trip.unlink()
                        raise RuntimeError("tripped")

                setattr(module, self.called, rest)

            vars(spec.loader)["exec_module"] = exec_module
        return spec


sys.meta_path.insert(0, _Paced())
