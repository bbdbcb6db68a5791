"""Which connections count as protected: by values, and by what real connections say."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from mailgres import embedded
from mailgres.transport import Protection, Transport, of_connection, protection
from mailgres.worker.store import Store

ELSEWHERE = "10.1.2.3"
OPENSSL = shutil.which("openssl")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_local_connections_need_no_tls(address: str) -> None:
    assert protection(Transport(address, encrypted=False)) == "local"


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "192.0.2.1", "2001:db8::1", "fe80::1%eth0", "::ffff:10.1.2.3"]
)
def test_a_private_network_is_a_network(address: str) -> None:
    assert protection(Transport(address, encrypted=False)) == "unencrypted"


@pytest.mark.parametrize(
    ("sslmode", "root", "expected"),
    [
        ("allow", True, "unverified"),
        ("prefer", False, "unverified"),
        ("prefer", True, "unverified"),
        ("require", False, "unverified"),
        ("require", True, "verified"),
        ("verify-ca", True, "verified"),
        ("verify-full", True, "verified"),
        ("verify-full", False, "verified"),
    ],
)
def test_tls_protects_if_libpq_insists_on_a_certificate_that_it_trusts(
    sslmode: str,
    root: bool,  # noqa: FBT001 - a column of the table above
    expected: Protection,
) -> None:
    transport = Transport(ELSEWHERE, encrypted=True, sslmode=sslmode, has_root_certificate=root)
    assert protection(transport) == expected


def test_a_mode_that_would_verify_means_nothing_without_tls() -> None:
    transport = Transport(ELSEWHERE, encrypted=False, sslmode="verify-full")
    assert protection(transport) == "unencrypted"


# --- real connections


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[str, Path]]:
    """A server with TLS on 127.0.0.1, and the file of the certificate that it can be known by."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed")
    with TemporaryDirectory(prefix="mailgres-tests-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        certificate, key = directory / "server.crt", directory / "server.key"
        with embedded.server(directory / "data") as url, psycopg.connect(url) as connection:
            _make_certificate(certificate, key)
            _use_certificate(connection, certificate, key)
            yield url, certificate


def _make_certificate(certificate: Path, key: Path) -> None:
    subprocess.run(
        [
            *(str(OPENSSL), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


def _use_certificate(connection: psycopg.Connection, certificate: Path, key: Path) -> None:
    """Have the server itself write the files, so that they belong to its account."""
    connection.autocommit = True
    for file, setting in ((certificate, "ssl_cert_file"), (key, "ssl_key_file")):
        lines = file.read_text().splitlines()
        connection.execute("CREATE TEMPORARY TABLE lines (n int, line text)")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO lines VALUES (%s, %s)", list(enumerate(lines)))
        (data,) = connection.execute("SELECT current_setting('data_directory')").fetchone() or ("",)
        program = f"umask 077; cat > {data}/{file.name}"
        copy = "COPY (SELECT line FROM lines ORDER BY n) TO PROGRAM '{}'"
        connection.execute(copy.format(program).encode())
        connection.execute("DROP TABLE lines")
        connection.execute(f"ALTER SYSTEM SET {setting} = '{file.name}'".encode())
    connection.execute("ALTER SYSTEM SET ssl = on")
    connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("mode", "trusted", "expected"),
    [
        ("disable", False, "unencrypted"),
        ("prefer", False, "unverified"),
        ("require", False, "unverified"),
        ("require", True, "verified"),
        ("verify-ca", True, "verified"),
        ("verify-full", True, "verified"),
    ],
)
def test_a_real_connection_says_how_it_is_protected(
    secured: tuple[str, Path],
    tmp_path: Path,
    mode: str,
    trusted: bool,  # noqa: FBT001 - a column of the table above
    expected: Protection,
) -> None:
    url, certificate = secured
    root = certificate if trusted else tmp_path / "none.crt"
    with psycopg.connect(url, sslmode=mode, sslrootcert=str(root)) as connection:
        found = of_connection(connection)
    assert protection(found) == "local"
    assert protection(replace(found, address=ELSEWHERE)) == expected


def test_the_certificates_of_the_system_imply_verification(secured: tuple[str, Path]) -> None:
    url, _ = secured
    if psycopg.pq.version() < 160000:
        pytest.skip("this libpq does not know sslrootcert=system")
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        psycopg.connect(url, sslrootcert="system")


def test_a_user_without_a_home_directory_has_no_certificate_there(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    with psycopg.connect(database_url) as connection:
        assert of_connection(connection).has_root_certificate is False


def test_a_store_knows_how_it_is_connected(database_url: str) -> None:
    store = Store(database_url, worker="w")
    store.close()
    assert store.protection == "local"
