"""Checks an installation: each check is a small function that returns problems and their fixes.

Without a database the other checks still run; a check that lacks rights says so.
"""

from __future__ import annotations

from mailgres.doctor.examination import NAMES, examine
from mailgres.doctor.finding import SEVERITIES, Finding
from mailgres.doctor.restore import restoring_sql

__all__ = ["NAMES", "SEVERITIES", "Finding", "examine", "restoring_sql"]
