"""The ring: each node keeps a copy of what the node before it has in memory, so that a lost node's state is not lost.

    node 0's memory -> node 1 -> node 2 -> node 0        while all train: the newest whole step, agent to agent
    node 1's memory <- node 2                            for a pod that was made anew, before its ranks start

Parts are asked for at the agents' status port, with the gang's key. A part counts where it came to once its hash is right.
See docs/decisions/0064-a-lost-nodes-state-lies-on-the-next-node.md.
"""
