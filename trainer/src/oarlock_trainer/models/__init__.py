"""Models: where they come from, what is done with all of them, and a folder for each family."""
