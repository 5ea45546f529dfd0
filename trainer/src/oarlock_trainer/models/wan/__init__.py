"""Wan 2.1, text to video: diffusers' own forward pass, UMT5 and a VAE of videos, and a small model of the same layout."""
