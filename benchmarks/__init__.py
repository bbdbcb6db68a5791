"""Measures how fast mailgres is, always as a ratio against something else in the same run."""
