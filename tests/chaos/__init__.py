"""Two operators, fake nodes and everything that can go wrong, at random: `make chaos SEED=7 MINUTES=30`.

A real control plane, scheduler and garbage collector; the operator as two processes with the chart's rights; nodes and
kubelets are played. What must never happen is judged from the API server's own watches, by code that shares nothing with
the operator's.

    storm.py      steps as the seed says: on_jobs.py, on_pods.py, on_nodes.py; field.py has what they are done to
    nodes.py      the nodes and their kubelets; voices.py what running pods answer
    operators.py  the two processes
    reports.py    termination messages, true and forged, and the ledger of what was planted
    history.py    what the watches told, in the order of their resource versions
    judge.py      what must never be in it
    calm.py       after each storm all is mended, and nothing may be stuck
"""
