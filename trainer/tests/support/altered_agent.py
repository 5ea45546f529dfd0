"""`oarlock-trainer` with other seconds than it ships with: what is waited for is the same, and comes sooner.

ALTERED='{"oarlock_trainer.agent.supervise:_NOTHING_TO_SAVE_SECONDS": 0.5}' python -m altered_agent agent ...
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from oarlock_trainer.cli import main

if __name__ == "__main__":
    for place, value in json.loads(os.environ.pop("ALTERED")).items():
        module, _, name = place.partition(":")
        found = import_module(module)
        getattr(found, name)  # that it is there
        setattr(found, name, value)
    sys.exit(main())
