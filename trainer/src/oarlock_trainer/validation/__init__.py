"""Pictures from prompts with the weights of the moment, and the task that only judges a model."""
