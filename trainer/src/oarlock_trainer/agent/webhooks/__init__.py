"""Webhooks: who is told what happens in a run, by the pods themselves. `webhooks.py` is the way in."""
