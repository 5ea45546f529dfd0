"""The model families that can be trained."""
