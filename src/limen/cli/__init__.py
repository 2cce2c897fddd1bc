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
    from limen.cli.show import clean
    from limen.errors import LimenError, SettingsError

    try:
        app()
    except LimenError as error:
        # A message may quote a file of somebody else's: it stays one line, and only text.
        print(f"limen: {clean(error)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SettingsError) else 1)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        place = "" if error.filename is None else f" `{clean(error.filename)}`"
        print(f"limen: cannot use{place or ' a file'}: {reason}", file=sys.stderr)
        sys.exit(1)
