"""The version of this release; ``--version`` reads it without importing anything else."""

__version__ = "0.1.0"
