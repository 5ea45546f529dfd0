"""From what pods said when they ended to one cause."""
