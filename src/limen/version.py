"""The version of the package, said once. Reading it from the metadata costs 60 ms at start."""

__version__ = "0.1.0"
