"""The command line, a thin layer over the SDK: what is typed becomes a call, and what it returns becomes text."""
