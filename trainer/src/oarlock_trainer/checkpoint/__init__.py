"""Atomic checkpoints, the fence that guards them, resume, and the exported model."""
