from __future__ import annotations

import psycopg
import pytest

from doctor.clinic import Clinic
from support.cluster import cluster, supabase_roles
from support.program import Program

__all__ = ["cluster", "supabase_roles"]


@pytest.fixture
def clinic(database_url: str, conn: psycopg.Connection) -> Clinic:
    """The doctor for the test's own database."""
    return Clinic(database_url, conn)


@pytest.fixture
def mailgres(database_url: str) -> Program:
    """The console script."""
    return Program(database_url)
