"""Nodes: which are in trouble, what was written on them, the pool that brakes guard, and where a gang would find room."""
