from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support.cluster import Cluster, cluster, supabase_project, supabase_roles

__all__ = ["cluster", "supabase_roles"]

STAND_IN = Path(__file__).with_name("supabase_stand_in.sql")


@pytest.fixture
def project(cluster: Cluster, supabase_roles: None, migrations: Path) -> Iterator[str]:  # noqa: ARG001
    """The URL of a migrated project on Supabase for its owner, extensions stood in for."""
    with supabase_project(cluster, migrations) as url:
        with psycopg.connect(url) as connection:
            connection.execute(STAND_IN.read_bytes())
        try:
            yield url
        finally:
            cluster.drop_roles("mailgres_worker_login")
