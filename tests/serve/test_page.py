"""The commands and code of docs/how-to/openai-clients.md work with a running server."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from live import live

from unmask.serve.execution.engine import Engine

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "openai-clients.md"
BLOCKS = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
AT = "localhost:8000"


@pytest.fixture(scope="module")
def server(models):
    with Engine({"demo": models["words"]}, workers=1) as engine, live(engine) as running:
        yield running


def test_every_curl_is_answered(server):
    commands = [
        command
        for block in BLOCKS
        for command in block.replace("\\\n", " ").splitlines()
        if command.startswith("curl ")
    ]
    assert len(commands) == 7
    for command in commands:
        asked = shlex.split(command.replace(AT, f"localhost:{server.port}"))
        done = subprocess.run([*asked, "-sS", "--fail-with-body"], capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert '"error":{' not in done.stdout


def test_the_openai_client_works_as_written(server, capsys):
    (program,) = (block for block in BLOCKS if "import OpenAI" in block)
    names: dict = {}
    exec(
        compile(
            program.replace(AT, f"localhost:{server.port}"), "docs/how-to/openai-clients.md", "exec"
        ),
        names,
    )
    names["client"].close()
    assert len(capsys.readouterr().out) > 60
