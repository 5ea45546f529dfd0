"""A training script as people write it for `accelerate launch`: it takes everything from accelerate and knows no more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator

if __name__ == "__main__":
    accelerator = Accelerator()
    ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    told = {
        "ranks": ranks,
        "processes": accelerator.num_processes,
        "local": accelerator.local_process_index,
        "device": accelerator.device.type,
        "precision": accelerator.mixed_precision,
    }
    Path(os.environ["SCRATCH"], f"told-{accelerator.process_index}").write_text(json.dumps(told))
    accelerator.wait_for_everyone()
    accelerator.end_training()
