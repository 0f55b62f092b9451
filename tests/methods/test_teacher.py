"""Training with a teacher: the loss is the cross-entropy with a mixture of the text and a model's predictions."""

from pathlib import Path

import pytest
import torch
import yaml

import unmask
from unmask.backbones.dit import DiT
from unmask.cli import main
from unmask.diffusion.schedule import SCHEDULES, LogLinear
from unmask.diffusion.time_sampler import Uniform
from unmask.errors import UnmaskError
from unmask.methods.distilled import with_teacher
from unmask.methods.mdlm import MDLM
from unmask.methods.sedd import SEDD
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.training.trainer import Trainer
from unmask.vocabulary import Vocabulary

VOCABULARY = Vocabulary.over(9)
BATCH = Batch(
    torch.arange(40).view(4, 10) % 8,
    torch.arange(10) < torch.tensor([[10], [10], [7], [10]]),
    torch.arange(10).expand(4, 10) < 2,
)


def model(seed: int, width: int = 8, timed: bool = False, kind=MDLM, schedule=None, **fields):
    torch.manual_seed(seed)
    shape = DiT.Config("", width, 1, 2, dropout=0.0, time_conditioning=timed)
    network = DiT(shape, VOCABULARY)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    method = kind(kind.Config(**fields), network, VOCABULARY, schedule or LogLinear(), Uniform())
    return method.double()


def student(teacher: MDLM | None, seed: int = 0, **fields) -> MDLM:
    method = model(seed, **fields)
    return method if teacher is None else with_teacher(method, teacher)


def with_gradient(method: MDLM) -> list[torch.Tensor]:
    """The training loss and its gradients."""
    method.zero_grad()
    total = method(BATCH, RowStream(0, 0, range(4), 4)).total
    total.backward()
    return [total.detach(), *(p.grad for p in method.parameters() if p.grad is not None)]


def assert_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other) > 3
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("weight", ["elbo", "uniform"])
def test_the_loss_is_the_cross_entropy_with_dense_mixtures(weight, timed):
    teacher = model(1, width=12, timed=timed)
    method = student(teacher, timed=timed, loss_weight=weight, teacher_share=0.3)
    found = with_gradient(method)
    method.zero_grad()
    tensors, valid = method.loss_tensors(BATCH, RowStream(0, 0, range(4), 4)), BATCH.valid
    at, chosen = tensors["at"], BATCH.x.flatten()[tensors["at"]]
    log_p, log_q = (
        one.log_mean(
            one.backbone.features(tensors["z_t"], tensors.get("sigma"), valid=valid).flatten(0, 1)[
                at
            ]
        )
        for one in (method, teacher)
    )
    wanted = 0.7 * torch.nn.functional.one_hot(chosen, log_p.shape[1]) + 0.3 * log_q.exp()
    total = -(tensors["by_token"][0] * (wanted * log_p.clamp(min=-1e30)).sum(1)).sum()
    total.backward()
    dense = [total.detach(), *(p.grad for p in method.parameters() if p.grad is not None)]
    for ours, theirs in zip(found, dense, strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-4, atol=1e-5)


def test_a_share_of_zero_is_the_loss_of_the_text():
    assert_equal(with_gradient(student(model(1), teacher_share=0.0)), with_gradient(student(None)))


def test_a_student_with_the_predictions_of_its_teacher_learns_nothing():
    method = student(model(0), teacher_share=1.0)
    assert max(float(part.abs().max()) for part in with_gradient(method)[1:]) < 1e-6
    other = student(model(1), teacher_share=1.0)
    assert max(float(part.abs().max()) for part in with_gradient(other)[1:]) > 1e-2


def test_a_teacher_is_neither_trained_nor_saved():
    method, alone = student(model(1)), student(None)
    assert method.state_dict().keys() == alone.state_dict().keys()
    assert len(list(method.parameters())) == len(list(alone.parameters()))
    method.train()
    [teacher] = method.networks[1:]
    assert not any(p.requires_grad for p in teacher.parameters())


def test_teachers_that_do_not_fit_are_refused():
    learned = SCHEDULES["learned"](SCHEDULES["learned"].Config())
    cases = (
        (model(0), model(1, kind=SEDD, timed=True), "the teacher is of SEDD: give a model of mdlm"),
        (model(0, kind=SEDD, timed=True), model(1), "SEDD learns from no teacher: set method mdlm"),
        (model(0), model(1, timed=True), r"set backbone\.time_conditioning true"),
        (model(0, schedule=learned), model(1), "train it without a teacher"),
    )
    for method, teacher, message in cases:
        with pytest.raises(UnmaskError, match=message):
            with_teacher(method, teacher)
    with pytest.raises(UnmaskError, match="teacher_share must be 0 or more, and 1 at most"):
        MDLM.Config(teacher_share=1.5)


class Killed(BaseException):
    """Simulates a signal that cannot be caught."""


TEXTS = [f"The {a} sat on the {b}." for a in ("cat", "dog", "queen") for b in ("mat", "log")]
TRAINING = {"steps": 30, "batch": 4, "lr": 0.01, "warmup": 0, "device": "cpu", "precision": "fp32"}
RARELY = {"save_every": 10, "validate_every": 0, "sample_every": 0, "log_every": 1000}


def recipe(folder: Path) -> str:
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(TEXTS * 4))
    data = {"train": str(corpus), "tokenizer": {"kind": "characters"}, "separator": "line"}
    data |= {"packing": "split", "length": 16, "holdout": 0.2, "cache": str(folder / "cache")}
    network = {"name": "dit", "width": 16, "depth": 1, "heads": 2, "dropout": 0}
    tree = {"backbone": network, "data": data, "training": TRAINING | RARELY}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tree))
    return str(folder / "recipe.yaml")


def predictions(folder: Path, x: torch.Tensor) -> torch.Tensor:
    at = (torch.zeros(3, dtype=torch.long), torch.arange(4, 7))
    method = unmask.load(folder, device="cpu").method
    return method.log_x_theta(x, torch.tensor([0.5]), at).exp()


def test_a_student_comes_near_its_teacher_and_a_resumed_run_has_its_bits(
    tmp_path, monkeypatch, capsys
):
    name = recipe(tmp_path)
    folders = {each: tmp_path / each for each in ("teacher", "alone", "near", "resumed", "other")}

    def train(run: str, *overrides: str) -> int:
        return main(["train", name, "--run", str(folders[run]), *overrides])

    assert train("teacher", "--training.steps", "60", "--backbone.width", "32") == 0
    learning = ("--teacher", str(folders["teacher"]), "--method.teacher_share", "0.9")
    assert train("alone") == train("near", *learning) == 0
    tokenizer = unmask.load(folders["teacher"]).tokenizer
    x = torch.tensor([tokenizer.encode("The cat sat on")])
    x[0, 4:7] = tokenizer.vocabulary.mask_id
    wanted, near, alone = (predictions(folders[each], x) for each in ("teacher", "near", "alone"))
    assert (wanted - near).abs().sum() < (wanted - alone).abs().sum()

    step = Trainer._step

    def ends(trainer: Trainer) -> None:
        if trainer.state.step == 15:
            raise Killed
        step(trainer)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "_step", ends)
        train("resumed", *learning)
    assert train("resumed", *learning) == 0
    one, other = (unmask.load(folders[each]).method.state_dict() for each in ("near", "resumed"))
    assert all(torch.equal(one[key], other[key]) for key in one)

    capsys.readouterr()
    assert train("other", "--teacher", "no/such/model") == 2
    assert "no/such/model" in capsys.readouterr().err
    assert train("other", "--teacher", "stories", "--init_from", str(folders["alone"])) == 2
    assert "has another tokenizer than this run" in capsys.readouterr().err
