"""`python -m latewood.cli`: the same as the `latewood` command."""

from latewood.cli.main import main

if __name__ == "__main__":
    main()
