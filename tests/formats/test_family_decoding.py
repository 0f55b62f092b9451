"""Decoding of the families: texts at temperature 0 equal those that their own code wrote for the same tiny models."""

from pathlib import Path

import pytest
import torch

import unmask
from benchmarks.quality.families import CASES, ROWS, logits, table, texts
from benchmarks.quality.family_models import MASK, write_family
from benchmarks.rows import read_rows

FAMILIES = list(dict.fromkeys(case.family for case in CASES))
STORED = {row["row"]: row for row in read_rows(ROWS)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    for family in FAMILIES:
        write_family(folder / family, family)
    return {family: unmask.load(folder / family) for family in FAMILIES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
def test_a_text_at_temperature_0_is_that_of_the_familys_own_code(case, models):
    row = STORED[case.row]
    assert row["sampler"] == case.sampler
    frame = texts(models[case.family], case)
    assert frame.tokens[:, case.prompt :].tolist() == row["ids"]
    assert frame.calls.tolist() == row["calls"]
    assert (
        len({token for ids in row["ids"] for token in ids}) > 1 and not (frame.tokens == MASK).any()
    )


def test_every_family_is_in_the_table_of_the_page_with_logits_of_its_own_code():
    found = list(table(list(STORED.values())))
    assert len(found) == 2 + len(FAMILIES)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "models-you-have.md"
    assert "\n".join(found) in page.read_text("utf-8")
    for family in FAMILIES:
        row = STORED[f"{family}: logits"]
        assert row["read"] <= 1e-5 and row["written"] <= 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_the_decoding_of_a_family_is_the_default(family, models):
    model = models[family]
    plain = {name: value for name, value in model.defaults.items() if name != "temperature"}
    text = model.generate("#$%", length=20, temperature=0, seed=3)[0].ids
    again = model.generate("#$%", length=20, temperature=0, seed=4, **plain)[0].ids
    assert text == again and MASK not in text
    if "threshold=1)" in model.defaults["sampler"]:
        return  # its number of steps follows from the text
    few, many = (model.generate("#$%", length=20, steps=steps)[0].calls for steps in (1, 20))
    assert few < many


@pytest.mark.parametrize("family", ["llada", "llada2_moe"])
def test_a_model_in_bf16_holds_its_weights_once(family, bf16, tmp_path):
    write_family(tmp_path / "theirs", family)
    model = unmask.load(tmp_path / "theirs", precision="bf16", device="cpu")
    backbone = model.method.backbone
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.bfloat16}
    assert all(block.frozen is None for block in backbone.blocks)
    if backbone.frozen is not None:
        assert backbone.frozen[0].data_ptr() == backbone.head.weight.data_ptr()
    assert MASK not in model.generate("#$%", length=12, temperature=0)[0].ids
    model.save(tmp_path / "ours")
    plain, again = unmask.load(tmp_path / "theirs"), unmask.load(tmp_path / "ours")
    for name, tensor in again.method.state_dict().items():
        assert torch.equal(tensor, plain.method.state_dict()[name].bfloat16().float()), name
    torch.testing.assert_close(logits(again), logits(plain), rtol=0, atol=0.6)


@pytest.mark.parametrize("counts", ["even", "share"])
def test_steps_write_all_tokens(counts, models):
    for steps in (1, 3, 20):
        spec = f"confidence:counts={counts},steps={steps}"
        text = models["llada"].generate(length=12, sampler=spec, temperature=0)[0]
        assert MASK not in text.ids and text.calls <= steps


def test_a_block_of_whole_rows_sees_the_masks_behind_it(models):
    model = models["llada"]
    blocks = model.generate(
        "#$%", length=20, sampler="blocks:block=4,inner=threshold", temperature=0
    )
    alone = model.generate("#$%", length=7, sampler="blocks:block=4,inner=threshold", temperature=0)
    assert blocks[0].ids[:7] != alone[0].ids[:7]
    several = model.generate(["#$%", "#", "$%&'("], length=20, seed=[1, 2, 3])
    for seed, prompt, text in zip([1, 2, 3], ["#$%", "#", "$%&'("], several, strict=True):
        assert model.generate(prompt, length=20, seed=seed)[0].ids == text.ids
