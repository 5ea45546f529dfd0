"""The objects that a TrainingJob becomes, as pure functions from the job to JSON."""
