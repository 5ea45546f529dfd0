"""TrainingJobs from Python: what the command `oarlock` does, as an SDK."""
