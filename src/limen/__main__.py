"""Run `limen` as `python -m limen`."""

from limen.cli import main

if __name__ == "__main__":
    main()
