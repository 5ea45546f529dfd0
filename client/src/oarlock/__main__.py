"""`python -m oarlock`: as the command `oarlock`."""

from oarlock.cli.main import main

if __name__ == "__main__":
    main()
