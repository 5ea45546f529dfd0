"""FLUX.1: diffusers' own forward pass, its encoders, and a small model of the same layout for tests."""
