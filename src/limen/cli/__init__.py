"""The command line: one file a command group, each imported light and heavy only when it runs."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command that the arguments name, and exit with its code.

    0 is well, 1 is a no or a fault, 2 is a wrong command line or a wrong setting.
    """
    # What is imported lives as long as the process: looking for garbage in it costs 0.2 s.
    gc.disable()
    from limen.cli.root import app
    from limen.errors import LimenError, SettingsError

    try:
        app()
    except LimenError as error:
        print(f"limen: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SettingsError) else 1)
