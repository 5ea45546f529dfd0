"""The demo: the main job end to end on a local cluster - train, lose a rank, recover, resume, export."""
