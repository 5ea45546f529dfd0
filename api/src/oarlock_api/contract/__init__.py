"""What operator and pod promise each other: names, environment, exit codes, the job file, the report, /status, the fence.

Both sides import these modules, and golden files of every released version are read by both sides' tests. The rules of
change: a reader ignores what it does not know, a writer never renames, and a number that is part of the contract never
gets a second meaning. Standard library only, so that the agent starts in milliseconds.
"""
