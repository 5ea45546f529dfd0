"""Small factors that are trained beside frozen layers: LoRA and LoKr."""
