"""Qwen-Image: diffusers' own forward pass, texts of any length by a language model, and a small model of the same layout."""
