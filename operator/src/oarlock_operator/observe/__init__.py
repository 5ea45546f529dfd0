"""One look at a job: itself, its pods, its groups and its output, read live and reduced to what decisions need."""
