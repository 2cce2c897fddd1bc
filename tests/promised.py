"""Bind a test to what it proves: `tests/promises.py` lists the promises."""

from __future__ import annotations

import pytest


def promise(*ids: str) -> pytest.MarkDecorator:
    """Mark a test as proof of promises, by their ids."""
    return pytest.mark.promise(*ids)
