"""What a trainer of the job's own tells of itself by webhooks: believed as far as steps go, and never against a node."""
