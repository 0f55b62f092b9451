"""LLaDA2Pipeline of diffusers with the package's networks, if diffusers is installed."""

import pytest
import torch
from transformers import AutoTokenizer

import unmask
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM

diffusers = pytest.importorskip("diffusers")


@pytest.mark.filterwarnings("ignore")  # diffusers warns about its own imports
def test_a_pipeline_generates_and_reloads(folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = UnmaskForMaskedLM.from_pretrained(folder)
    pipe = diffusers.LLaDA2Pipeline(network, diffusers.BlockRefinementScheduler(), tokenizer)
    pipe.save_pretrained(tmp_path / "pipeline")
    again = diffusers.LLaDA2Pipeline.from_pretrained(tmp_path / "pipeline", tokenizer=tokenizer)
    prompt = torch.tensor([tokenizer("The cat")["input_ids"][:-1]])  # without EOS
    asked = {"input_ids": prompt, "gen_length": 8, "block_length": 4, "num_inference_steps": 4}
    rows = []
    for each in (pipe, again):
        each.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(0)
        rows.append(each(**asked, eos_early_stop=False, generator=generator).sequences)
    assert torch.equal(*rows)
    assert rows[0].shape == (1, 8)
    assert network.config.mask_token_id not in rows[0]


@pytest.mark.filterwarnings("ignore")
def test_a_text_does_not_end_with_its_first_block(tmp_path):
    """The pipeline gives the row up to the present block; the network would end the text there."""
    unmask.load("stories", device="cpu").save_pretrained(tmp_path / "stories")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "stories")
    network = UnmaskForMaskedLM.from_pretrained(tmp_path / "stories")
    prompt = torch.tensor([tokenizer("Once upon a time")["input_ids"][:-1]])
    texts = []
    for row_length in (None, 48):
        network.config.row_length = row_length
        network.save_pretrained(tmp_path / "network")
        again = UnmaskForMaskedLM.from_pretrained(tmp_path / "network")
        assert again.config.row_length == row_length
        pipe = diffusers.LLaDA2Pipeline(again, diffusers.BlockRefinementScheduler(), tokenizer)
        pipe.set_progress_bar_config(disable=True)
        generator = torch.Generator().manual_seed(0)
        made = pipe(input_ids=prompt, gen_length=16, block_length=8, generator=generator)
        texts.append(tokenizer(made.texts[0])["input_ids"][1:-1])
    assert len(texts[0]) == 2
    assert len(texts[1]) == 16
