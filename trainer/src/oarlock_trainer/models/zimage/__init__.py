"""Z-Image: its encoder, its forward pass, and a small model of the same layout for tests."""
