"""What becomes of each option, one row each. The defaults are those of SimpleTuner 4."""
