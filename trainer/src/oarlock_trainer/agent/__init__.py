"""PID 1 of every training pod: starts the ranks, watches them, tells how it goes, and ends with one verdict.

Nothing below this package imports torch, so that the agent answers within a tenth of a second after the container
started, while torch still loads elsewhere.
"""
