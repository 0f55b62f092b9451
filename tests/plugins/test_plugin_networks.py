"""Plugins of networks and methods, from the configuration to the served text."""

from pathlib import Path

import pytest
import torch
import yaml
from plugins import plugged

import unmask
from unmask.cli import main
from unmask.data.tokenizers.tokenizer import TOKENIZERS
from unmask.training.trainer import Trainer

TEXTS = [
    f"The {who} sat on the {what}." for who in ("cat", "dog", "queen") for what in ("mat", "log")
]
SMALL = {
    "data": {"separator": "line", "packing": "split", "length": 16, "holdout": 0.2},
    "training": {
        "steps": 4,
        "batch": 4,
        "lr": 0.01,
        "warmup": 0,
        "device": "cpu",
        "save_every": 1,
        "validate_every": 0,
        "sample_every": 0,
        "log_every": 1,
    },
}


RARELY = ("--training.save_every", "1000", "--training.log_every", "1000")


class Killed(BaseException):
    """Simulates a signal that cannot be caught."""


class Runs:
    """`unmask train` on a recipe in a folder, undisturbed or killed and started again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch

    def recipe(self, sections: dict, data: dict | None = None) -> str:
        corpus = self.folder / "corpus.txt"
        corpus.write_text("\n".join(TEXTS))
        about = {"train": str(corpus), "tokenizer": {"kind": "characters"}}
        about |= {"cache": str(self.folder / "cache")}
        tree = {**SMALL, **sections, "data": SMALL["data"] | about | (data or {})}
        (self.folder / "recipe.yaml").write_text(yaml.safe_dump(tree))
        return str(self.folder / "recipe.yaml")

    def train(self, recipe: str, run: str, *overrides: str) -> Path:
        assert main(["train", recipe, "--run", str(self.folder / run), *overrides]) == 0
        return self.folder / run

    def killed(self, recipe: str, run: str, *overrides: str) -> None:
        """Ends a run in its third step."""
        step = Trainer._step

        def ends(trainer: Trainer) -> None:
            if trainer.state.step == 2:
                raise Killed
            step(trainer)

        with self.monkeypatch.context() as patch:
            patch.setattr(Trainer, "_step", ends)
            with pytest.raises(Killed):
                main(["train", recipe, "--run", str(self.folder / run), *overrides])

    def both(self, recipe: str, *overrides: str) -> unmask.Model:
        """The model of an undisturbed run. Checks that a killed and resumed run has the same bits."""
        straight = unmask.load(self.train(recipe, "straight", *overrides), device="cpu")
        self.killed(recipe, "resumed", *overrides)
        resumed = unmask.load(self.train(recipe, "resumed", *overrides), device="cpu")
        assert same(straight, resumed)
        return straight


def same(one: unmask.Model, other: unmask.Model) -> bool:
    """True if all weights are equal to the bit."""
    ours, theirs = one.method.state_dict(), other.method.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.fixture
def runs(tmp_path, monkeypatch, capsys) -> Runs:
    return Runs(tmp_path, monkeypatch)


def saved(model: unmask.Model, folder: Path) -> unmask.Model:
    """The model, written and read again."""
    model.save(folder)
    again = unmask.load(folder, device="cpu")
    assert same(model, again)
    return again


def test_a_recurrent_network_is_causal_or_bidirectional(runs, tmp_path, capsys):
    with plugged("gated_recurrence"):
        assert main(["backbones"]) == 0
        assert "in one or both directions" in capsys.readouterr().out
        recipe = runs.recipe({"backbone": {"name": "gated_recurrence", "width": 16}})
        model = saved(runs.both(recipe), tmp_path / "saved")
        assert model.perplexity().certificate == "upper"
        assert "The" in model.fill("The[MASK:4]sat")[0].text
        left = ("--method", "autoregressive", "--backbone.causal", "true")
        assert main(["train", recipe, "--method", "autoregressive"]) == 2
        assert "set backbone.causal true" in capsys.readouterr().err
        causal = unmask.load(runs.train(recipe, "causal", *left), device="cpu")
        results = causal.generate(["The", "The cat"], length=12, n=2, stop=False)
        x = torch.tensor([result.ids for result in results])
        inputs, network = causal.method.inputs(x), causal.method.backbone
        state = network.new_state(len(x), x.shape[1])
        steps = [network.features(inputs[:, i : i + 1], state=state) for i in range(x.shape[1])]
        whole = network.features(inputs)
        torch.testing.assert_close(torch.cat(steps, 1), whole)
        assert state.crop(3) == 0 and not state.layers
        # greedy texts, token by token with the state, are the likeliest token of the whole row
        [greedy] = causal.generate("The", length=12, stop=False, strategy="deterministic")
        ids = torch.tensor([greedy.ids])
        log_p = causal.method.log_next(network.features(causal.method.inputs(ids))[0])
        never = [i for i in range(log_p.shape[1]) if i >= len(causal.tokenizer.alphabet)]
        log_p[:, never] = -torch.inf
        assert log_p.argmax(-1)[4:].tolist() == greedy.ids[4:]


def test_a_method_of_vectors_has_its_own_codes_and_sampler(runs, tmp_path, capsys):
    network = {"name": "dit", "width": 32, "depth": 1, "heads": 2, "dropout": 0}
    with plugged("gaussian_codes") as [plugin]:
        recipe = runs.recipe({"method": "gaussian_codes", "backbone": network})
        assert main(["train", recipe]) == 2
        assert "set backbone.time_conditioning true" in capsys.readouterr().err
        model = saved(runs.both(recipe, "--backbone.time_conditioning", "true"), tmp_path / "saved")
        assert model.config.method.config == plugin.GaussianCodes.Config()
        assert model.method.codes.weight.shape[1] == 16
        bound = model.perplexity(draws=2)
        assert bound.certificate == "upper" and bound.error > 0
        assert bound.terms.keys() == {"diffusion", "prior", "reconstruction"}
        [text] = model.generate("The cat", length=12, steps=3, stop=False)
        assert text.calls == 3 and text.text.startswith("The cat")
        assert model.generate("The cat", length=12, steps=3, stop=False)[0].ids == text.ids
        assert model.fill("The [MASK:3] sat", steps=2)[0].text.endswith(" sat")
        for options in ({"sampler": "ancestral"}, {"regex": "The .*"}):
            with pytest.raises(unmask.UnmaskError, match=r"cannot use this sampler|leave them out"):
                model.generate("The", **options)


def test_a_group_of_parameters_has_its_own_learning_rate(runs):
    from unmask.training.optimizer import NamedAdamW

    network = {"name": "dit", "width": 32, "depth": 1, "heads": 2, "time_conditioning": True}
    with plugged("gaussian_codes"):
        recipe = runs.recipe({"method": "gaussian_codes", "backbone": network})
        model = unmask.load(runs.train(recipe, "run"), device="cpu")
        optimizer = NamedAdamW(model.method, model.config.training)
        rates = {}
        optimizer.step(0.1, torch.ones(()))
        for group in optimizer.adamw.param_groups:
            rates |= {id(p): (group["lr"], group["weight_decay"]) for p in group["params"]}
        of = {name: rates[id(p)] for name, p in model.method.named_parameters()}
        assert of["codes.weight"] == (pytest.approx(0.03), 0.0)
        assert of["backbone.head.weight"] == (0.1, model.config.training.weight_decay)


@pytest.mark.parametrize("backbone", ["dit", "causal"])
def test_a_classifier_is_a_head_on_any_network(backbone, runs, tmp_path):
    rows = [f'{{"text": "{text}", "who": "{text.split()[1]}"}}' for text in TEXTS * 4]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    data = {"train": str(tmp_path / "rows.jsonl"), "label_field": "who", "label_dropout": 0}
    data |= {"packing": "pad", "length": 32}
    network = {"name": backbone, "width": 32, "depth": 1, "heads": 2, "dropout": 0}
    with plugged("text_classifier"):
        recipe = runs.recipe({"method": "text_classifier", "backbone": network}, data)
        model = saved(runs.both(recipe), tmp_path / "saved")
        with pytest.raises(unmask.UnmaskError, match="writes no text"):
            model.generate("The")
        assert model.perplexity().tokens < len(rows)  # a row counts once
        run = runs.train(recipe, "longer", "--training.steps", "60", *RARELY)
        learned = unmask.load(run, device="cpu")
        labels = learned.tokenizer.labels
        x = [[0, *learned.tokenizer.encode(text)][:22] for text in TEXTS]
        x = torch.tensor([row + [0] * (22 - len(row)) for row in x])
        guessed = learned.method.log_p(x, torch.ones_like(x, dtype=torch.bool)).argmax(-1)
        wanted = [list(labels).index(text.split()[1]) for text in TEXTS]
        assert sum(a == b for a, b in zip(guessed.tolist(), wanted, strict=True)) >= 4


def test_an_encoder_and_a_decoder_read_pairs(runs, tmp_path, capsys):
    rows = [
        f'{{"de": "{word}", "en": "{word[::-1]}"}}' for word in ("abc", "bcd", "cde", "dea") * 4
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))
    data = {"train": str(tmp_path / "pairs.jsonl"), "source_field": "de", "target_field": "en"}
    data |= {"packing": "pad", "length": 12}
    network = {"name": "two_readers", "width": 32, "depth": 1, "heads": 2, "positions": 8}
    with plugged("two_readers"):
        recipe = runs.recipe({"backbone": network}, data)
        assert main(["train", recipe]) == 2
        assert "set data.length 8 or backbone.positions 12" in capsys.readouterr().err
        model = saved(runs.both(recipe, "--backbone.positions", "12"), tmp_path / "saved")
        assert model.perplexity([("abc", "cba")]).tokens == 4
        longer = ("--backbone.positions", "12", "--training.steps", "100", *RARELY)
        learned = unmask.load(runs.train(recipe, "longer", *longer), device="cpu")
        [text] = learned.generate(
            "abc", sampler="confidence", strategy="deterministic", ending="first"
        )
        assert text.text == "cba"
        # the target reads the source, and the source does not read the target
        h = model.method.backbone.features
        ids = model.tokenizer.encode
        v = model.tokenizer.vocabulary
        row = [v.bos_id, *ids("abc"), v.eos_id, *ids("cb"), v.mask_id]
        other = [v.bos_id, *ids("abd"), *row[4:]]
        one, two = h(torch.tensor([row])), h(torch.tensor([other]))
        assert not torch.allclose(one[0, -1], two[0, -1])


@pytest.mark.skipif("dna" not in TOKENIZERS, reason="this tree has no tokenizer of DNA")
@pytest.mark.parametrize(
    "network",
    [
        {"name": "both_strands", "width": 16},
        {"name": "caduceus", "width": 8, "depth": 1, "states": 4},
        {"name": "caduceus", "width": 8, "depth": 1, "states": 4, "variant": "ph"},
    ],
    ids=["plugin", "ps", "ph"],
)
def test_a_network_reads_both_strands_of_dna(network, runs, tmp_path, capsys):
    letters = "\n".join("ACGTTGCAAN"[i:] + "GGATCCTA"[: i + 2] for i in range(6))
    (tmp_path / "dna.txt").write_text(letters)
    data = {"train": str(tmp_path / "dna.txt"), "tokenizer": {"kind": "dna"}}
    with plugged("both_strands"):
        recipe = runs.recipe({"backbone": network}, data)
        assert main(["train", recipe, "--data.tokenizer.kind", "bytes", "--run", "runs/x"]) == 2
        assert "set data.tokenizer.kind dna" in capsys.readouterr().err
        model = saved(runs.both(recipe), tmp_path / "saved")
        assert set(model.fill("ACG[MASK:3]T")[0].text) <= set("ACGTN")
        v = model.tokenizer.vocabulary
        partner = torch.tensor(v.complement_ids)
        x = torch.tensor([[*model.tokenizer.encode("ACGGTNA"), v.mask_id, v.eos_id]])
        for folder, form in (("ours", ()), ("theirs", ("--pretrained",))):
            assert main(["export", str(tmp_path / "saved"), str(tmp_path / folder), *form]) == 0
            assert same(model, unmask.load(tmp_path / folder, device="cpu"))
        backbone = model.method.backbone
        ours, theirs = (backbone.logits(backbone.features(z)) for z in (x, partner[x].flip(1)))
        torch.testing.assert_close(theirs, ours.flip(1)[..., partner])


@pytest.mark.parametrize("plugin", ["gated_recurrence", "gaussian_codes"])
def test_a_plugin_is_served_and_in_the_playgrounds_menu(plugin, runs):
    from fastapi.testclient import TestClient

    router = pytest.importorskip("unmask.extensions.play.page_routes").router
    from unmask.serve.app import create_app
    from unmask.serve.execution.engine import Engine

    sections = {
        "gated_recurrence": {
            "method": "autoregressive",
            "backbone": {"name": "gated_recurrence", "width": 16, "causal": True},
        },
        "gaussian_codes": {
            "method": "gaussian_codes",
            "backbone": {
                "name": "dit",
                "width": 32,
                "depth": 1,
                "heads": 2,
                "time_conditioning": True,
            },
        },
    }
    with plugged(plugin):
        run = runs.train(runs.recipe(sections[plugin]), "run")
        model = unmask.load(run, device="cpu")
        with Engine({"own": model}) as engine:
            app = create_app(engine, routers=[router(engine)])
            with TestClient(app, base_url="http://localhost") as client:
                asked = {"prompt": "The", "max_tokens": 4, "seed": 3, "steps": 2}
                if model.method.capabilities.causal:
                    del asked["steps"]
                answer = client.post("/v1/completions", json=asked)
                assert answer.status_code == 200, answer.text
                menu = client.get("/play/menu").json()
        [own] = menu["models"]
        assert own["sampler"] == model.method.sampler
        assert own["sampler"] in own["samplers"]
        assert ("ancestral" in own["samplers"]) is False
