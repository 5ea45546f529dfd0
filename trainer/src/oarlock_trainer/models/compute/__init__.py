"""What computes a transformer of diffusers fast: attention, recomputation, float8, frozen weights, compiled blocks."""
