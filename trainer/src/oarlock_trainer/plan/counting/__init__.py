"""What a transformer costs, counted from its own blocks: FLOPs, parameters, and what is kept for the backward pass.

A model is made on torch's meta device, where tensors have shapes and types but no memory, and run there: a model of any size
takes seconds. No family is known here: a class, its configuration and a description of its arguments (`arguments`) are all.
`scaling` and `counted` need no torch; the other modules do, and nothing that a laptop's plan needs imports them.
"""
