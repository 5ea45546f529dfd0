"""What outlives pods, job and operator: the story and the logs, kept below the output by every agent, off the ranks' way."""
