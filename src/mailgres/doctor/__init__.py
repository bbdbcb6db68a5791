"""Examines a set-up: every check a small function that says what it found and what mends it.

It works half-blind: without a database it looks at the rest, and what it may not see it names.
"""

from __future__ import annotations

from mailgres.doctor.examination import NAMES, examine
from mailgres.doctor.finding import SEVERITIES, Finding
from mailgres.doctor.restore import restoring_sql

__all__ = ["NAMES", "SEVERITIES", "Finding", "examine", "restoring_sql"]
