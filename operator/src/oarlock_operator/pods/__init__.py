"""The pods of a job: as the API tells them, as the watch saw them end, and those that no list names any more."""
