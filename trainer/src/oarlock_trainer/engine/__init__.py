"""How the ranks work together: process groups, DeepSpeed, the learning rate."""
