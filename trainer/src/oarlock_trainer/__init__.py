"""The trainer: the agent that is PID 1 of every pod, and the training program that its ranks run."""
