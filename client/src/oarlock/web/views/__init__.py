"""One file a view: what it asks for, and which drawing it becomes."""
