"""unmask train-order and the sampler learned_order on a tiny trained model."""

import json

import pytest
import torch

import unmask
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.extensions.orders.order_policy import FEATURES, STATIC, OrderPolicy, nearness
from unmask.extensions.orders.order_training import OrderTraining
from unmask.extensions.orders.train_policy import train_order_policy
from unmask.files.storage import seal

TEXT = "\n\n".join(f"the king {i} sat on the hill and the queen {i} ran." for i in range(40))
SHORT = OrderTraining(steps=(2, 4), updates=3, batch=4, group=2)


def test_nearness_is_the_inverse_distance_to_known_tokens():
    known = torch.tensor([[False, True, False, False, True, False]])
    left, right = nearness(known)[0].unbind(-1)
    assert left[2:4].tolist() == [1.0, 0.5]
    assert right[2:4].tolist() == [0.5, 1.0]
    assert (float(left[0]), float(right[5])) == (0.0, 0.0)


def test_the_log_probability_of_choices_is_that_of_their_draw():
    """REINFORCE needs this. The mean of 1 / p over draws is then the number of possible draws."""
    rows, places, several = 8000, 4, 2
    policy, seen = OrderPolicy("random"), torch.ones(rows, places, dtype=torch.bool)
    policy.prior[STATIC:] = -1.0  # scores that a choice changes
    generator = torch.Generator().manual_seed(0)
    exponential = torch.empty(rows, places)
    picked, log_chance = policy.choose(
        torch.zeros(rows, places, STATIC),
        ~seen,
        seen,
        torch.full((rows,), several),
        lambda: -exponential.exponential_(generator=generator).log(),
    )
    assert picked.sum(1).eq(several).all()
    inverse = (-log_chance.detach()).exp()
    error = float(inverse.std()) / rows**0.5
    assert abs(float(inverse.mean()) - 4 * 3) < 4 * error < 0.6


def test_the_command_trains_saves_and_generates(run, tmp_path, capsys):
    (tmp_path / "text.txt").write_text(TEXT)
    out = tmp_path / "order.safetensors"
    command = ["train-order", str(run), "--data", str(tmp_path / "text.txt"), "--steps", "2,4"]
    command += ["--updates", "3", "--batch", "4", "--group", "2", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["steps"] for row in rows] == [2, 4]
    assert all(row["before"] > 0 and row["after"] > 0 and row["error"] > 0 for row in rows)
    generate = ["generate", str(run), "--length", "12", "--steps", "3", "--json", "--seed", "2"]
    assert main([*generate, "--order-policy", str(out)]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["calls"] <= 3


def test_a_saved_policy_writes_the_same_text(model, tmp_path):
    policy, values = train_order_policy(model, [TEXT], SHORT)
    assert len(values) == 2
    policy.save(tmp_path / "order.safetensors")
    again = OrderPolicy.load(tmp_path / "order.safetensors")
    options = {"sampler": "learned_order", "length": 20, "steps": 4, "seed": 3}
    [ours] = model.generate(order_policy=policy, **options)
    [theirs] = model.generate(order_policy=again, **options)
    assert ours.ids == theirs.ids
    second, _ = train_order_policy(model, [TEXT], SHORT)
    for weights, other in zip(policy.parameters(), second.parameters(), strict=True):
        assert torch.equal(weights, other)  # the seed sets texts and orders


def test_a_policy_of_another_model_and_another_sampler_are_refused(model):
    foreign = OrderPolicy(digest="0" * 16)
    with pytest.raises(UnmaskError, match="trained for another model"):
        model.generate(sampler="learned_order", order_policy=foreign)
    with pytest.raises(UnmaskError, match="give sampler learned_order"):
        model.generate(sampler="margin", order_policy=OrderPolicy())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
def test_a_policy_travels_with_the_folder_of_its_model(precision, run, model, tmp_path):
    policy = OrderPolicy("confidence", model.digest)
    policy.prior[FEATURES.index("position")] = 100.0  # from right to left
    policy.save(tmp_path / "order.safetensors")
    export = ["export", str(run), str(tmp_path / "model"), "--precision", precision]
    assert main([*export, "--order-policy", str(tmp_path / "order.safetensors")]) == 0
    unmask.load(tmp_path / "model", device="cpu").save(tmp_path / "copy")
    again = unmask.load(tmp_path / "copy", device="cpu")
    text = {"length": 12, "stop": False}
    for options in (
        {**text, "sampler": "learned_order"},
        {**text, "sampler": "semi_autoregressive:inner=learned_order"},
        {"fill": "the [MASK:9] ran.", "sampler": "learned_order"},
        {"edit": "the king sat on the hill.", "remask": 0.9, "sampler": "learned_order"},
    ):
        changed = [frame.changed[0].nonzero().flatten() for frame in again.stream(**options)]
        places = torch.cat(changed).tolist()
        assert places == sorted(places, reverse=True) and len(places) > 4


def test_a_folder_refuses_the_policy_of_other_weights(run, model, tmp_path, capsys):
    policy = OrderPolicy(digest="0" * 16)
    policy.save(tmp_path / "order.safetensors")
    export = ["export", str(run), str(tmp_path / "model")]
    assert main([*export, "--order-policy", str(tmp_path / "order.safetensors")]) == 2
    assert "trained for another model" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    model.save(tmp_path / "model")
    policy.save(tmp_path / "model" / "order.safetensors")  # not in the manifest, so no part of it
    assert unmask.load(tmp_path / "model", device="cpu").attachments == {}
    files = [path.name for path in (tmp_path / "model").iterdir() if path.name != "manifest.json"]
    seal(tmp_path / "model", *files)
    with pytest.raises(UnmaskError, match="trained for another model"):
        unmask.load(tmp_path / "model", device="cpu")


def test_a_causal_model_has_no_order_to_learn(left_to_right):
    with pytest.raises(UnmaskError, match="has no order to learn"):
        train_order_policy(left_to_right, [TEXT], SHORT)


def test_a_text_of_few_rows_is_refused(model):
    with pytest.raises(UnmaskError, match="5 or more are needed"):
        train_order_policy(model, ["a king"], SHORT)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda model: train_order_policy(model, [TEXT], SHORT, prior="foo"), "unknown prior"),
        (lambda model: train_order_policy(model, [TEXT], SHORT, length=-3), "2 or more, not -3"),
        (lambda model: OrderTraining(steps=()), "steps is empty"),
        (lambda model: OrderTraining(lr=1e9), "lr must lie in"),
        (
            lambda model: model.generate(sampler="learned_order", order_policy="order.safetensors"),
            "is no order policy",
        ),
    ],
)
def test_mistakes_in_python_are_one_line(mistake, message, model):
    with pytest.raises(UnmaskError, match=message):
        mistake(model)


@pytest.mark.parametrize("content", [b"", b"no policy", bytes(2**20 + 1), None])
def test_a_file_without_a_policy_is_one_line(content, run, tmp_path, capsys):
    file = tmp_path / "order.safetensors"
    if content is not None:
        file.write_bytes(content)
    assert main(["generate", str(run), "--order-policy", str(file)]) == 2
    complaint = capsys.readouterr().err
    assert "make one with 'unmask train-order MODEL'" in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prior", "best"], "--prior is 'best'"),
        (["--length", "1"], "--length must be 2 or more"),
        (["--steps", "0"], "steps must be 1 or more"),
        (["--steps", "99999999999"], "steps must be 1000000 or less"),
        (["--out", "none/x.safetensors"], "there is no folder"),
    ],
)
def test_mistakes_of_the_command_are_one_line(options, message, run, capsys):
    assert main(["train-order", str(run), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_new_policy_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    OrderPolicy()
    assert torch.equal(torch.get_rng_state(), before)


def nan_policy(path) -> None:
    policy = OrderPolicy()
    torch.nn.init.constant_(policy.out.weight, torch.nan)
    policy.save(path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"\x80\x04."), "holds no order policy"),
        (nan_policy, r"order\.safetensors holds NaN or infinity in out\.weight"),
    ],
)
def test_a_damaged_policy_is_refused(write, message, model, tmp_path):
    model.save(tmp_path / "model")
    write(tmp_path / "model" / "order.safetensors")
    files = [path.name for path in (tmp_path / "model").iterdir() if path.name != "manifest.json"]
    seal(tmp_path / "model", *files)
    with pytest.raises(UnmaskError, match=message):
        unmask.load(tmp_path / "model", device="cpu")
