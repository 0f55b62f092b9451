"""unmask serve: its address, its requirements and its end."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from random_models import random_model

from unmask.cli import command_modules, main
from unmask.cli.commands.serve import models_by_name, read_token
from unmask.errors import UnmaskError

TOKEN = "a token that nobody can guess"


def refused(capsys, *arguments: str) -> str:
    assert main(["serve", *arguments]) == 2
    return capsys.readouterr().err


def test_other_machines_need_a_token(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("UNMASK_TOKEN", raising=False)
    assert "there is no token" in refused(capsys, "runs/none", "--host", "0.0.0.0", "--port", "0")
    assert "no model" in refused(
        capsys, "runs/none", "--host", "0.0.0.0", "--port", "0", "--no-token"
    )
    monkeypatch.setenv("UNMASK_TOKEN", "short")
    assert "too short" in refused(capsys, "runs/none", "--port", "0")
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(str(file)) == TOKEN
    monkeypatch.setenv("UNMASK_TOKEN", TOKEN)
    assert read_token(None) == TOKEN
    for nothing in (b"\n", b"\xff\xfe\x00"):
        file.write_bytes(nothing)
        with pytest.raises(UnmaskError, match="holds no token"):
            read_token(str(file))
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UnmaskError, match="write the token in a file"):
            read_token(str(missing))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("port", "99999"),
            ("port", "-1"),
            ("active", "0"),
            ("waiting", "-40"),
            ("workers", "-1"),
        ),
        *(("timeout", "nan"), ("grace", "nan"), ("max-length", "0")),
    ],
)
def test_mistakes_are_refused_before_a_model_is_loaded(capsys, option, value):
    told = refused(capsys, "runs/none", "--port", "0", f"--{option}", value)
    assert option.removeprefix("max-") in told and "no model" not in told
    assert told.count("\n") == 1


def test_a_port_in_use_is_an_error(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot listen at port {port}" in refused(capsys, "runs/none", "--port", port)


def test_missing_libraries_are_named(capsys, monkeypatch):
    real = importlib.import_module

    def missing(name: str, *rest):
        if name == "uvicorn":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert "pip install -e '.[serve]'" in refused(capsys, "runs/demo", "--port", "0")


def test_models_have_names(tmp_path):
    (tmp_path / "demo").mkdir()
    assert models_by_name([f"{tmp_path}/demo/", "best=runs/x"]) == {
        "demo": f"{tmp_path}/demo/",
        "best": "runs/x",
    }
    (tmp_path / "lr=0.1").mkdir()
    assert models_by_name([f"{tmp_path}/lr=0.1"]) == {"lr=0.1": f"{tmp_path}/lr=0.1"}
    with pytest.raises(UnmaskError, match="two models are called 'demo'"):
        models_by_name([f"{tmp_path}/demo", "demo=other"])


def test_the_command_serves_and_ends_at_a_signal(tmp_path):
    random_model().save(tmp_path / "words")
    command = [sys.executable, "-m", "unmask", "serve", str(tmp_path / "words"), "--port", "0"]
    environment = {**os.environ, "UNMASK_TOKEN": TOKEN, "PYTHONUNBUFFERED": "1"}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--grace", "0.5"], env=environment, **options) as running:
        line = running.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/v1/models").status_code == 401
        models = httpx.get(f"{url}/v1/models", headers=headers).json()["data"]
        assert [model["id"] for model in models] == ["words"]
        body = {"length": 2000, "seed": 1}
        post = httpx.stream("POST", f"{url}/v1/stream", json=body, headers=headers, timeout=30)
        with post as answer:
            lines = answer.iter_lines()
            next(lines)
            running.send_signal(signal.SIGTERM)
            last = [line for line in lines if line.startswith("data: ")][-1]
        assert "shutting down" in json.loads(last.removeprefix("data: "))["error"]["message"]
        assert running.wait(20) == 0
        log = running.stderr.read()
        assert "Traceback" not in log
        assert "INFO GET /v1/models 401 " in log and "INFO POST /v1/stream 200 " in log


STUCK_JOB = """
import threading, sys
from unmask.model import Model
Model.fill = lambda *given, **more: threading.Event().wait(600)
from unmask.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("command", "stop"),
    [("serve", signal.SIGTERM), ("serve", signal.SIGINT), ("play", signal.SIGINT)],
)
def test_a_request_that_cannot_be_ended_does_not_keep_the_process(tmp_path, command, stop):
    if command not in command_modules():
        pytest.skip(f"the command {command} is of an extension that this tree lacks")
    random_model().save(tmp_path / "words")
    arguments = [command, str(tmp_path / "words"), "--port", "0"]
    arguments += ["--no-browser"] if command == "play" else ["--grace", "0.3"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        [sys.executable, "-c", STUCK_JOB, *arguments], env=environment, **options
    )
    with running, ThreadPoolExecutor(1) as pool:
        line = running.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        asked = pool.submit(httpx.post, f"{url}/v1/fill", json={"text": "A [MASK]."}, timeout=30)
        while httpx.get(f"{url}/healthz").json()["jobs"] == 0:
            time.sleep(0.01)
        begun = time.monotonic()
        running.send_signal(stop)
        assert asked.result().status_code == 503  # its client gets a response all the same
        assert running.wait(20) == 1
        assert time.monotonic() - begun < 5
        assert (
            running.stderr.read()
            .splitlines()[-1]
            .startswith("unmask: error: a request did not end within")
        )
