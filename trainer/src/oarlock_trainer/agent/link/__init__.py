"""The gang link: every agent keeps one connection to rank 0's, so that all end together even without the operator.

Standard library alone, and nothing newer than Python 3.10: agents in images that are not ours run this too.
"""
