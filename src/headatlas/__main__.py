"""Run the `headatlas` command by `python -m headatlas`."""

from headatlas.cli import main

if __name__ == "__main__":
    main()
