"""The soak: a real job on real local nodes under a random mix of faults, judged by the curve of an undisturbed run."""
