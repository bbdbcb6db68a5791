"""The version of mailgres: this is the only place that has it."""

__version__ = "0.1.0a2.dev0"
