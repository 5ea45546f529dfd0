"""The training loop: from the job's setup to the last step, with what is saved, measured and told on the way."""
