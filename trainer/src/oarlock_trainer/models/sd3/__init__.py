"""Stable Diffusion 3.5: the architecture that is trained, its forward pass, its text encoders, and a tiny one."""
