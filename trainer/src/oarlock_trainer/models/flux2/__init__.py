"""FLUX.2: diffusers' own forward pass, text of a language model's inner layers, and a small model of the same layout."""
