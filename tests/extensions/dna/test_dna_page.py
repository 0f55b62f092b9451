"""The playground with a model of DNA."""

import re

import pytest

from unmask.config.components import build_method
from unmask.config.run_config import load_recipe, resolve
from unmask.extensions.dna.dna_tokenizer import DnaTokenizer
from unmask.extensions.dna.fasta import read_genome
from unmask.model import Model

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("unmask.extensions.play.page_routes")
from browsing import visit
from local_server import LocalServer
from playwright.sync_api import expect


def test_a_model_of_dna_fills_gaps_between_letters_and_saves_fasta(browser, tmp_path):
    settings = {"backbone.width": 16, "backbone.depth": 1, "data.length": 80}
    config, tokenizer = resolve(load_recipe("dna"), settings), DnaTokenizer(ends=False)
    dna = Model(build_method(config, tokenizer.vocabulary), tokenizer, config)
    play = visit(browser, accept_downloads=True)
    with LocalServer({"dna": dna}) as server:
        play.open(server.url, "layout=tiles&speed=8&seed=4&steps=6")
        for name in ("A new sequence", "A beginning", "A gap"):
            expect(play.page.get_by_role("button", name=name)).to_be_visible()
        play.take("ACG___TT_A" + "C" * 60)
        assert play.masked() == [3, 4, 5, 8]
        play.tokens().nth(0).focus()
        play.page.keyboard.press("t")
        expect(play.page.locator("#text")).to_have_value("ACG___TT_A" + "C" * 60)
        play.fill()
        bases = "".join(play.row())
        assert re.fullmatch("ACG[ACGT]{3}TT[ACGT]AC{60}", bases)
        with play.page.expect_download() as download:
            play.page.click("#save-fasta")
        download.value.save_as(tmp_path / "x.fa")
        play.page.context.close()
    assert read_genome(tmp_path / "x.fa") == {"sequence_1": bases}
    head, first, second = (tmp_path / "x.fa").read_text().splitlines()
    assert (head, len(first), len(second)) == (">sequence_1 length=70", 60, 10)
    assert play.troubles == []
