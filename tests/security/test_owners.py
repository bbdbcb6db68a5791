"""Who migrates need not be a superuser, and need not be able to make roles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mailgres import migrate
from security.conftest import Cluster
from support.grants import EXECUTE, OURS, PRODUCER
from support.queue import Queue, report

SIGNATURE = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'enqueue_email'"


@pytest.fixture
def notices() -> list[str]:
    return []


def may_enqueue(url: str, role: str) -> bool:
    with psycopg.connect(url) as connection:
        queue = Queue(connection)
        signature = queue.value(SIGNATURE)
        answer: bool = queue.value(
            "SELECT has_function_privilege(%s, %s, 'EXECUTE')", role, signature
        )
        return answer


def assert_works(url: str) -> None:
    """The owner can do everything, from enqueuing to sent."""
    with psycopg.connect(url, autocommit=True) as connection:
        queue = Queue(connection)
        queue_id = queue.enqueue()
        (done,) = queue.finish(report(queue.claim_one(), "sent"))
        assert (done.id, done.status) == (queue_id, "sent")
        assert queue.events(queue_id) == ["sent"]
        assert queue.value("SELECT mailgres.fold_rollups()") > 0


@pytest.fixture
def without_roles(cluster: Cluster) -> Iterator[Cluster]:
    """The server while the roles of mailgres do not exist in it."""
    renamed = [role for role in OURS if exists(cluster, role)]
    for role in renamed:
        cluster.admin.execute(f"ALTER ROLE {role} RENAME TO {role}_away")
    yield cluster
    cluster.drop_roles(*OURS)
    for role in renamed:
        cluster.admin.execute(f"ALTER ROLE {role}_away RENAME TO {role}")


@pytest.fixture
def with_roles(without_roles: Cluster) -> Cluster:
    """The server while they exist, made by another role."""
    for role in OURS:
        without_roles.admin.execute(f"CREATE ROLE {role} NOLOGIN")
    return without_roles


def exists(cluster: Cluster, role: str) -> bool:
    found = cluster.admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    return found is not None


def test_migrating_without_the_right_to_create_roles_prints_notices(
    without_roles: Cluster, migrations: Path, notices: list[str]
) -> None:
    with without_roles.owner() as url:
        migrate.upgrade(url, on_notice=notices.append, directory=migrations)
        assert len(notices) == len(OURS)
        for role, notice in zip(OURS, notices, strict=True):
            assert notice.startswith(f"role {role} was not created: ")
            assert not exists(without_roles, role)
        assert_works(url)


def test_nobody_may_do_anything_without_the_roles(without_roles: Cluster, migrations: Path) -> None:
    with without_roles.owner() as url:
        migrate.upgrade(url, directory=migrations)
        assert not may_enqueue(url, "public")


def test_an_owner_migrates_where_the_roles_exist(
    with_roles: Cluster, migrations: Path, notices: list[str]
) -> None:
    with with_roles.owner() as url:
        migrate.upgrade(url, on_notice=notices.append, directory=migrations)
        assert notices == []
        for role in OURS:
            assert may_enqueue(url, role) == (role in EXECUTE["public.enqueue_email"])
        assert_works(url)


def test_an_owner_with_createrole_creates_the_roles(
    without_roles: Cluster, migrations: Path, notices: list[str]
) -> None:
    with without_roles.owner("CREATEROLE") as url:
        migrate.upgrade(url, on_notice=notices.append, directory=migrations)
        assert notices == []
        assert all(exists(without_roles, role) for role in OURS)
        assert may_enqueue(url, PRODUCER)
        assert_works(url)


def test_migrating_again_grants_what_the_notice_names(
    without_roles: Cluster, migrations: Path
) -> None:
    """'Have it created and migrate again': the role then has its privileges."""
    with without_roles.owner() as url:
        migrate.upgrade(url, directory=migrations)
        for role in OURS:
            without_roles.admin.execute(f"CREATE ROLE {role} NOLOGIN")
        migrate.upgrade(url, directory=migrations)
        assert may_enqueue(url, PRODUCER)


def test_two_databases_of_a_cluster_share_the_roles(
    with_roles: Cluster, migrations: Path, notices: list[str]
) -> None:
    with with_roles.owner() as first, with_roles.owner() as second:
        for url in (first, second):
            migrate.upgrade(url, on_notice=notices.append, directory=migrations)
            assert may_enqueue(url, PRODUCER)
        assert notices == []
