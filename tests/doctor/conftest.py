from __future__ import annotations

import psycopg
import pytest

from doctor.harness import DoctorHarness
from support.cluster import cluster, supabase_roles
from support.program import Program

__all__ = ["cluster", "supabase_roles"]


@pytest.fixture
def harness(database_url: str, conn: psycopg.Connection) -> DoctorHarness:
    """The doctor for the test's own database."""
    return DoctorHarness(database_url, conn)


@pytest.fixture
def mailgres(database_url: str) -> Program:
    """The console script."""
    return Program(database_url)
