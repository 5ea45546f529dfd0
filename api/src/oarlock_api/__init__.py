"""What operator, trainer and tools agree on: the TrainingJob models and the pod contract."""
