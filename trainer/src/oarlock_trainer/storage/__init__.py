"""Places for files: a folder that every node mounts, or a prefix of an S3 bucket, behind one interface."""
