"""All ranks of a gang exchange something once before they train: whether each is reached, and how fast."""
