"""unmask play: models, port and browser; mistakes are reported before a model is loaded."""

import socket
import webbrowser
from queue import Queue

import pytest
from fastapi.testclient import TestClient

from unmask.cli import main
from unmask.extensions.play import play as command
from unmask.serve import server


@pytest.fixture
def served(monkeypatch) -> dict:
    """The models, port and app that would be served, and the address for the browser.
    No server is started.
    """
    seen: dict = {"opened": Queue()}

    def serve(app, engine, settings, listening, started):
        seen.update(models=list(engine.models), port=listening.getsockname()[1], app=app)
        seen["host"] = listening.getsockname()[0]
        started()
        engine.close()

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(webbrowser, "open", seen["opened"].put)
    return seen


def test_models_have_names_and_the_browser_opens_the_address(run, served, capsys):
    assert main(["play", str(run), f"again={run}", "--port", "0"]) == 0
    assert served["models"] == ["run", "again"]
    assert served["host"] == "127.0.0.1"
    address = f"http://127.0.0.1:{served['port']}"
    assert address in capsys.readouterr().out
    assert served["opened"].get(timeout=10) == address
    assert TestClient(served["app"], base_url=address).get("/").status_code == 200


def test_no_browser_and_a_free_port_where_the_usual_one_is_taken(run, served, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(command, "PORT", taken.getsockname()[1])
        assert main(["play", str(run), "--no-browser"]) == 0
        assert served["port"] != command.PORT
    assert served["opened"].empty()


MISTAKES = [
    (["nowhere"], "no model 'nowhere'"),
    (["nowhere", "--port", "70000"], "--port must lie in 0..65535"),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES)
def test_mistakes_are_one_line(arguments, says, served, capsys):
    assert main(["play", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert says in complaint
    assert complaint.count("\n") == 1


def test_a_requested_port_that_is_in_use_is_an_error(served, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["play", "nowhere", "--port", port]) == 2
    assert f"cannot listen at port {port}" in capsys.readouterr().err


def test_without_a_model_the_shipped_ones_are_served(served, monkeypatch, capsys):
    shipped = pytest.importorskip("unmask.shipped", reason="no models ship with this tree")
    monkeypatch.setattr(shipped, "names", list)
    assert main(["play"]) == 2
    assert "unmask train demo" in capsys.readouterr().err
