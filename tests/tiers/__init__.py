"""The two tiers of tests: what `make test` and `make test-all` run, what it cost, and what it keeps of the README's promises.

Which test belongs to which tier is told by its marks (oarlock_local.pytest_tiers); here is what runs them.
"""
