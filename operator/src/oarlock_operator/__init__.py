"""The operator: watches TrainingJobs and keeps each one's gang of pods as its spec and its faults demand."""
