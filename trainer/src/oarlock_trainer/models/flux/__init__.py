"""FLUX.1: its encoders, its own forward pass, and a small model of the same layout for tests."""
