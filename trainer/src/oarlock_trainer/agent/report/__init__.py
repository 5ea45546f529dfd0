"""<output>/reports/index.html: rank 0's agent has it written at the first step, at checkpoints and at the end."""
