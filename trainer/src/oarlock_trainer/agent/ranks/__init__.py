"""The processes that train, seen from the agent: the built-in trainer's ranks, or the command of spec.custom."""
