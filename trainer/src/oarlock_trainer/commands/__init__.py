"""The commands of `oarlock-trainer`, one file each, and what they share."""
