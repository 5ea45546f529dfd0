"""The agent in one file, for images that hold nothing of Oarlock: pure Python, run by any CPython from 3.10 on."""
