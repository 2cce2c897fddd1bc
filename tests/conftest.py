"""What all tests share: how the processes that they start begin."""

from __future__ import annotations

import os

# A hundred processes are started here; compiled once, they start in a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
