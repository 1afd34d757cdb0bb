"""Real PostgreSQL, MariaDB and Redis servers for the tests, one of each per run, if installed on the machine.

Each runs in a temporary folder and listens on a Unix socket only: no ports can collide, and pytest-socket needs no
exception. It ends with the run, also when that is killed. Tests that need a server that is not installed are skipped
with the reason; with `AGENTRAG_REQUIRE_SERVERS=1`, as in CI, they fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

_PROGRAM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
_START_TIMEOUT = 60.0  # seconds, on a busy machine


class CannotStartError(Exception):
    """A server is not installed or does not start."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of an empty PostgreSQL database, for SQLAlchemy; its user is the superuser."""
    with _server_or_skip("PostgreSQL", _postgres) as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """URL of an empty MariaDB database, for SQLAlchemy; its user is the superuser."""
    with _server_or_skip("MariaDB", _mariadb) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of an empty Redis server."""
    with _server_or_skip("Redis", _redis) as url:
        yield url


def server(name: str) -> AbstractContextManager[str]:
    """Start a server, "PostgreSQL", "MariaDB" or "Redis", and return its URL; for commands outside pytest."""
    return _server_or_skip(name, {"PostgreSQL": _postgres, "MariaDB": _mariadb, "Redis": _redis}[name])


# -- the servers ------------------------------------------------------------------------------------------------------


def _postgres(folder: Path) -> Iterator[str]:
    initdb, postgres = _program("initdb"), _program("postgres")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        shutil.chown(folder, user, user)
    options = ["-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    _run([initdb, *options, "--locale=C.UTF-8"], folder, user)
    settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "shared_buffers=32MB"]
    command = [postgres, "-D", f"{folder}/data", *(f"-c{setting}" for setting in settings)]
    stop = signal.SIGINT  # SIGTERM would wait for every client
    with _running(command, folder, user, lambda: _answers(f"{folder}/.s.PGSQL.5432", _ping_postgres), stop):
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"


def _ping_postgres(path: str) -> None:
    import psycopg

    psycopg.connect(host=str(Path(path).parent), user="postgres", dbname="postgres").close()


def _mariadb(folder: Path) -> Iterator[str]:
    install, server = _program("mariadb-install-db"), _program("mariadbd")
    common = ["--no-defaults", f"--datadir={folder}/data"]
    if os.geteuid() == 0:
        common.append("--user=root")
    _run([install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"], folder)
    socket = f"{folder}/socket"
    charset = ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"]
    quick = ["--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
    with _running(
        [server, *common, *charset, *quick, f"--socket={socket}", f"--pid-file={folder}/pid"],
        folder,
        None,
        lambda: _answers(socket, _create_mariadb_database),
    ):
        yield f"mysql+pymysql://root@localhost/tests?unix_socket={socket}&charset=utf8mb4"


def _create_mariadb_database(path: str) -> None:
    import pymysql

    with pymysql.connect(unix_socket=path, user="root") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS tests")


def _redis(folder: Path) -> Iterator[str]:
    socket = f"{folder}/socket"
    command = [_program("redis-server"), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", str(folder)]
    with _running(command, folder, None, lambda: _answers(socket, _ping_redis)):
        yield f"unix://{socket}"


def _ping_redis(path: str) -> None:
    import redis

    with redis.Redis(unix_socket_path=path) as client:
        client.ping()


# -- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _server_or_skip(name: str, start: Callable[[Path], Iterator[str]]) -> Iterator[str]:
    # a short path: that of a Unix socket may have 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="agentrag-", dir="/tmp" if Path("/tmp").is_dir() else None))
    server = start(folder)
    try:
        try:
            url = next(server)
        except CannotStartError as error:
            _skip_or_fail(f"no {name} for the tests: {error}")
        try:
            yield url
        finally:
            server.close()  # type: ignore[attr-defined]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _skip_or_fail(reason: str) -> NoReturn:
    if os.environ.get("AGENTRAG_REQUIRE_SERVERS"):
        pytest.fail(reason)
    pytest.skip(reason)


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        paths = [path for pattern in _PROGRAM_FOLDERS for path in sorted(Path("/").glob(pattern[1:]))]
        program = shutil.which(name, path=os.pathsep.join(map(str, paths)))
    if program is None:
        raise CannotStartError(f"{name} is not installed")
    return program


def _as_user(command: list[str], user: str | None, stop: signal.Signals = signal.SIGTERM) -> list[str]:
    """Return the command run as another user, and ended by the system when this process ends."""
    if shutil.which("setpriv") is None:
        if user:
            raise CannotStartError("setpriv, which starts it as another user than root, is not installed")
        return command
    switch = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    return ["setpriv", f"--pdeathsig={stop.name[3:]}", *switch, *command]


def _run(command: list[str], folder: Path, user: str | None = None) -> None:
    result = subprocess.run(_as_user(command, user), cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CannotStartError(f"{Path(command[0]).name} failed: {result.stderr.strip()[-500:]}")


@contextmanager
def _running(
    command: list[str], folder: Path, user: str | None, ready: Callable[[], bool], stop: signal.Signals = signal.SIGTERM
) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(_as_user(command, user, stop), cwd=folder, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _START_TIMEOUT
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                output_end = log.read_text(encoding="utf-8", errors="replace")[-500:]
                raise CannotStartError(f"{Path(command[0]).name} does not answer: {output_end}")
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(path: str, ping: Callable[[str], None]) -> bool:
    if not Path(path).exists():
        return False
    try:
        ping(path)
    except Exception:
        return False
    return True
