"""The numbers of a run as pure functions: what a step takes, what is refused, and why."""
