"""FLUX.1: encoders, noise schedule, loss, and a small model of the same layout for tests."""
