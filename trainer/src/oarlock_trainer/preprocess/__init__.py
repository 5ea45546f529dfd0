"""Pictures and captions become latents and text embeddings, once."""
