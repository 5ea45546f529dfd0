"""The operator's process: it starts, leads, watches, queues keys and works them off."""
