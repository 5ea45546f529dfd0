"""What diffusers' own pipeline predicts with the adapters of a folder, beside what our model predicts with them.

    python lora_in_diffusers.py MODEL ADAPTERS RANK

Both answer the same inputs. Writes JSON: how far they are apart, and how far theirs is from the base model's answer. A
process of its own, because the pipeline has to be imported before anything of ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from diffusers import FluxPipeline

from oarlock_api.weights import Lora
from oarlock_trainer.models.flux import lora, transformer
from oarlock_trainer.models.flux.loss import MicroBatch, predict

if __name__ == "__main__":
    model, adapters, rank = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    source = torch.Generator().manual_seed(0)
    batch = MicroBatch(
        latents=torch.randn(2, 4, 8, 8, generator=source),
        noise=torch.randn(2, 4, 8, 8, generator=source),
        text=torch.randn(2, 6, 32, generator=source).to(torch.bfloat16),
        pooled=torch.randn(2, 32, generator=source).to(torch.bfloat16),
        sigmas=torch.tensor([0.2, 0.7]),
        guidance=torch.ones(2),
        text_mask=None,
    )
    pipeline = FluxPipeline.from_pretrained(model, dtype=torch.bfloat16)
    ours = transformer.load(model)
    settings = Lora(rank=rank)
    lora.add_adapters(ours, settings, seed=0)
    lora.load(ours, settings, adapters)
    with torch.no_grad():
        base = predict(pipeline.transformer, batch, has_guidance=True)
        pipeline.load_lora_weights(adapters)
        theirs = predict(pipeline.transformer, batch, has_guidance=True)
        mine = predict(ours.eval(), batch, has_guidance=True)
    answer = {name: float((theirs - other).abs().max()) for name, other in (("apart", mine), ("moved", base))}
    sys.stdout.write(json.dumps(answer))
