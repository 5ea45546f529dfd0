"""The processes that train: one host that imports everything once and forks the ranks of its node."""
