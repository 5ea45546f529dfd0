"""Model hubs: repositories of models that are read from and published to."""
