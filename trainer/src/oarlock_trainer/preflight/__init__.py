"""Checks before the ranks start: what would fail the job in an hour fails it now, with the numbers."""
