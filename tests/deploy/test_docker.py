"""deploy/docker: nothing here runs containers, so the files are read as their tools read them."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from deploy.files import DEPLOY, ROOT, check_call, read
from mailgres import __version__

yaml: Any = pytest.importorskip("yaml")

DOCKER = DEPLOY / "docker"
PINNED = re.compile(r"[\w./-]+:\d+\.\d+(\.\d+)?[\w.-]*")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile: instruction and arguments, lines joined, comments gone."""
    text = re.sub(r"^#.*\n", "", read("docker", "Dockerfile"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [
        (word, rest.strip()) for line in lines if line for word, _, rest in [line.partition(" ")]
    ]


def given(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def last_stage() -> list[tuple[str, str]]:
    all_of_them = instructions()
    start = max(n for n, (word, _) in enumerate(all_of_them) if word == "FROM")
    return all_of_them[start:]


@pytest.fixture
def compose() -> Any:
    return yaml.safe_load(read("docker", "compose.yaml"))


# --- the image


def test_the_base_image_is_pinned_and_supported() -> None:
    bases = {rest.split()[0] for rest in given("FROM")}
    assert len(bases) == 1
    (base,) = bases
    assert PINNED.fullmatch(base)
    (low, high) = re.findall(r"[<>]=?3\.(\d+)", pyproject("requires-python"))
    assert int(low) <= int(base.split(".")[1]) < int(high)


def pyproject(key: str) -> str:
    (line,) = re.findall(rf"^{key} = .*$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return str(line)


def test_the_image_does_not_run_as_root() -> None:
    words = [word for word, _ in last_stage()]
    (user,) = [rest for word, rest in last_stage() if word == "USER"]
    uid, _, gid = user.partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert f"--uid {uid} " in " ".join(rest for word, rest in last_stage() if word == "RUN")
    assert "RUN" not in words[words.index("USER") :]


def test_the_image_holds_no_secret() -> None:
    assert given("ARG") == []
    assert given("ADD") == []
    (environment,) = given("ENV")
    assert set(re.findall(r"(\w+)=", environment)) == {
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
    }


def test_the_image_runs_commands_that_exist() -> None:
    entry, command = (json.loads(given(word)[0]) for word in ("ENTRYPOINT", "CMD"))
    assert entry == ["mailgres"]
    check_call(command)
    locked = (ROOT / "requirements/runtime.txt").read_text()
    for package in ("boto3", "starlette", "psycopg"):  # of the extras ses and http, and always
        assert re.search(rf"^{package}==", locked, re.MULTILINE)
    assert given("EXPOSE") == ["8725"]


def sources() -> list[tuple[str, str]]:
    """Return what is copied out of the checkout, and where to."""
    found = []
    for rest in given("COPY"):
        if not rest.startswith("--from="):
            *files, target = rest.split()
            found += [(file, file if target == "./" else target) for file in files]
    return found


def test_the_image_builder_gets_only_what_is_copied() -> None:
    ignored = [line for line in read("docker", "Dockerfile.dockerignore").splitlines() if line]
    patterns = [line for line in ignored if not line.startswith("#")]
    assert patterns[0] == "*"
    assert sorted(line[1:] for line in patterns if line.startswith("!")) == sorted(
        file for file, _ in sources()
    )
    assert any(fnmatch.fnmatch("src/.env.local", line.replace("**", "*")) for line in patterns[1:])
    for file, _ in sources():
        assert (ROOT / file).exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_package_can_be_built_from_what_is_copied(tmp_path: Path) -> None:
    build, out = tmp_path / "build", tmp_path / "out"
    build.mkdir()
    for file, target in sources():
        if (ROOT / file).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / file, build / target, ignore=skip)
        else:
            shutil.copy(ROOT / file, build / target)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(build)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in out.iterdir()] == [f"mailgres-{__version__}-py3-none-any.whl"]


# --- compose


def test_compose_runs_commands_that_exist(compose: Any) -> None:
    services = compose["services"]
    assert services.keys() == {"postgres", "migrate", "worker", "serve"}
    for name in services.keys() - {"postgres"}:
        check_call(services[name]["command"])
        assert services[name]["image"] == "mailgres", "built from this checkout"
    assert PINNED.fullmatch(services["postgres"]["image"])


def test_compose_services_wait_for_the_migration(compose: Any) -> None:
    services = compose["services"]
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    assert "healthcheck" in services["postgres"]
    for name in ("worker", "serve"):
        done = {"migrate": {"condition": "service_completed_successfully"}}
        assert services[name]["depends_on"] == done
        assert services[name]["restart"] == "unless-stopped"
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > 30, "grace"


def test_compose_services_have_no_privileges(compose: Any) -> None:
    for name in ("migrate", "worker", "serve"):
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
        assert service["volumes"] == ["socket:/var/run/postgresql:ro"]
        assert service["mem_limit"] == "512m"


def test_nothing_is_open_to_the_world(compose: Any) -> None:
    for service in compose["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_compose_takes_secrets_from_the_environment_and_reports_missing_ones(compose: Any) -> None:
    asked = set()
    for service in compose["services"].values():
        for variable, value in service["environment"].items():
            if re.search("PASSWORD|SECRET|TOKEN", variable):
                match = re.fullmatch(r"\$\{(\w+):\?.+\}", value)
                assert match, f"{variable} is not from outside"
                asked.add(match[1])
    assert asked == set(re.findall(r"^(\w+)=$", read("docker", ".env.example"), re.MULTILINE))
    for service in compose["services"].values():
        url = urlsplit(service["environment"].get("DATABASE_URL", ""))
        assert url.password is None


def variables(service: Any) -> set[str]:
    """The variables of .env that a service gets."""
    return set(re.findall(r"\$\{(\w+):", " ".join(service["environment"].values())))


def test_each_service_has_its_own_role_and_no_other_password(compose: Any) -> None:
    services = compose["services"]
    roles = {
        name: urlsplit(services[name]["environment"]["DATABASE_URL"]).username
        for name in ("migrate", "worker", "serve")
    }
    login = "mailgres_worker_login"
    assert roles == {"migrate": "mailgres_owner", "worker": login, "serve": login}
    assert variables(services["migrate"]) == {"OWNER_PASSWORD"}
    assert variables(services["worker"]) == {"WORKER_PASSWORD"}
    assert not variables(services["serve"]) & {"OWNER_PASSWORD", "POSTGRES_PASSWORD"}
    assert "env_file" not in services["migrate"], "it needs no key of a provider"


def test_the_way_to_the_database_is_a_socket_that_asks_for_a_password(compose: Any) -> None:
    services = compose["services"]
    for name in ("migrate", "worker", "serve"):
        given = conninfo_to_dict(services[name]["environment"]["DATABASE_URL"])
        assert (given["host"], given["dbname"]) == ("/var/run/postgresql", "mailgres")
    assert "socket:/var/run/postgresql" in services["postgres"]["volumes"]
    assert services["postgres"]["environment"]["POSTGRES_INITDB_ARGS"] == "--auth=scram-sha-256"


def test_a_new_volume_gets_the_roles_and_then_their_passwords(compose: Any) -> None:
    mounted = [
        one.split(":") for one in compose["services"]["postgres"]["volumes"] if "initdb.d" in one
    ]
    assert [mode for _, _, mode in mounted] == ["ro", "ro"]
    files = [(DOCKER / source).resolve() for source, _, _ in sorted(mounted, key=lambda x: x[1])]
    assert files == [DEPLOY / "roles.sql", DOCKER / "passwords.sql"]


def test_compose_builds_from_the_repository(compose: Any) -> None:
    build = compose["services"]["worker"]["build"]
    context = (DOCKER / build["context"]).resolve()
    assert context == ROOT.resolve()
    assert (context / build["dockerfile"]).is_file()


def test_files_with_secrets_are_not_for_git() -> None:
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {".env", "mailgres.env", "mailgres-migrate.env"} <= set(ignored)


def test_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker here")
    if subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False
    ).returncode:
        pytest.skip("docker has no compose here")
    shutil.copy(DOCKER / "compose.yaml", tmp_path)
    example = read("docker", ".env.example")
    (tmp_path / ".env").write_text(re.sub(r"^(\w+)=$", r"\1=x", example, flags=re.MULTILINE))
    command = ["docker", "compose", "-f", str(tmp_path / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
