"""What the node's GPUs tell while ranks train, and what follows from it."""
