"""The servers for the tests answer, store Chinese text, and end with the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa


@pytest.mark.parametrize("server", ["postgres_url", "mariadb_url"])
def test_a_database_keeps_chinese_text(server, request):
    engine = sa.create_engine(request.getfixturevalue(server))
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT '龙𠮷 ok'")).scalar() == "龙𠮷 ok"
    engine.dispose()


def test_redis_answers(redis_url):
    import redis

    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.set("键", "值")
        assert client.get("键") == "值"
        client.delete("键")


SCRIPT = """
import os, sys
sys.path.insert(0, {root!r})
from tests.servers import _server_or_skip, _redis
with _server_or_skip("Redis", _redis) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the end of the parent process")
def test_a_server_ends_with_a_run_that_is_killed(redis_url):
    root = str(Path(__file__).parents[1])
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(root=root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    socket = run.stdout.readline().strip().removeprefix("unix://")
    assert Path(socket).exists()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.stdin.close()
    run.stdout.close()
    deadline = time.monotonic() + 30
    while Path(socket).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(socket).exists()
    shutil.rmtree(Path(socket).parent)


def test_a_missing_server_fails_where_servers_are_required(monkeypatch):
    from tests import servers

    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(servers, "_PROGRAM_FOLDERS", ())
    monkeypatch.setenv("AGENTRAG_REQUIRE_SERVERS", "1")
    with (
        pytest.raises(pytest.fail.Exception, match="redis-server is not installed"),
        servers._server_or_skip("Redis", servers._redis),
    ):
        pass
    monkeypatch.delenv("AGENTRAG_REQUIRE_SERVERS")
    with (
        pytest.raises(pytest.skip.Exception, match="redis-server is not installed"),
        servers._server_or_skip("Redis", servers._redis),
    ):
        pass
