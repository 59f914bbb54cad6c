"""`python -m headatlas`: the same as the `headatlas` command."""

from headatlas.cli import main

if __name__ == "__main__":
    main()
