"""A node's memory of the newest steps: what its ranks go on from when they start anew in the same pod.

Snapshots as checkpoints have them (docs/decisions/0012), in files of /dev/shm, which outlive the ranks' processes and end
with the pod. A checkpoint in the storage stays what survives a lost pod.

    /dev/shm/oarlock-JOBUID-a2/
      rank-00003-0.state            what rank 3 kept after one step ...
      rank-00003-1.state            ... and after another one: while one is written, the other one counts
      step-120-rank-00003.json      the manifest of a file that is whole, in the form of a checkpoint's

A file counts as long as a manifest names it. The manifest is removed before its file is written again, and made, in one
piece, when the file is hashed: so a rank that is killed in the midst leaves nothing that counts.
"""
