"""The package runs no code from files that it reads, and the files of a run contain no secrets."""

import ast
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

import unmask
from unmask.config.components import build_method
from unmask.config.run_config import load_recipe, resolve
from unmask.data.tokenizers.kinds import build_tokenizer, load_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.model import Model

SOURCE = Path(unmask.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "code"}
CALLS = {
    *("eval", "exec", "compile", "__import__", "torch.load", "numpy.load", "np.load"),
    *("yaml.load", "yaml.full_load", "yaml.unsafe_load", "os.system", "os.popen"),
}
# these compile a network or a pattern, not Python code
ALLOWED = {"torch.compile", "re.compile"}
# torch.load with an explicit weights_only=True reads only tensors and plain values, and refuses
# every
# unknown name. One file needs it, for checkpoints that are pickles.
WEIGHTS_ONLY = "formats/pickle.py"


def only_weights(call: ast.Call) -> bool:
    """True if a call of torch.load has an explicit weights_only=True."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return given.get("weights_only") == "True" and None not in given and len(call.args) == 1


def findings(tree: ast.AST, weights: bool = False) -> Iterator[str]:
    """All imports and calls that could run code from a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (name for name in names if name.partition(".")[0] in MODULES)
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        harmless = weights and name == "torch.load" and only_weights(node)
        if name in CALLS and name not in ALLOWED and not harmless:
            yield name
        for keyword in node.keywords:
            true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            unsafe = keyword.arg in ("trust_remote_code", "shell", "allow_pickle")
            if unsafe and (true or not isinstance(keyword.value, ast.Constant)):
                yield f"{name}({keyword.arg})"
            if keyword.arg == "Loader" and ast.unparse(keyword.value) != "yaml.SafeLoader":
                yield f"{name}(Loader)"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: p.stem)
def test_no_code_from_files_is_run(path):
    weights = path.relative_to(SOURCE).as_posix() == WEIGHTS_ONLY
    assert list(findings(ast.parse(path.read_text(encoding="utf-8")), weights)) == []


def test_torch_load_needs_an_explicit_weights_only():
    told = ast.parse("torch.load(f, weights_only=True, mmap=True)")
    assert list(findings(told)) == ["torch.load"] and list(findings(told, weights=True)) == []
    for call in ("f", "f, weights_only=False", "f, weights_only=w", "f, weights_only=True, **more"):
        found = findings(ast.parse(f"torch.load({call})"), weights=True)
        assert list(found) == ["torch.load"], call


def test_calls_that_run_code_are_found():
    bad = """
import pickle, shelve.x
from marshal import loads
eval("1"); exec(x); torch.load(f); np.load(f, allow_pickle=True); yaml.load(f); os.system("x")
yaml.compose(f, Loader=yaml.Loader); subprocess.run("x", shell=True)
from_pretrained(n, trust_remote_code=remote)
"""
    found = set(findings(ast.parse(bad)))
    assert found == {
        *("pickle", "shelve.x", "marshal", "eval", "exec", "torch.load", "np.load", "yaml.load"),
        *("np.load(allow_pickle)", "os.system", "yaml.compose(Loader)", "subprocess.run(shell)"),
        "from_pretrained(trust_remote_code)",
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    shape = [("backbone.width", "8"), ("backbone.depth", "1"), ("backbone.heads", "2")]
    config = resolve(load_recipe("demo"), [*shape, ("data.tokenizer.kind", "bpe")])
    tokenizer = build_tokenizer(TokenizerConfig("bpe", 270), ["the cat sat on the mat"])
    Model(build_method(config, tokenizer.vocabulary), tokenizer, config).save(folder)
    return folder


@pytest.fixture
def model(exported, tmp_path) -> Path:
    return shutil.copytree(exported, tmp_path / "model")


def reseal(folder: Path) -> None:
    """Rewrites the manifest, as an attacker who changed the files would."""
    names = [p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"]
    digests = {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in names
    }
    (folder / "manifest.json").write_text(json.dumps(digests))


def refused(folder: Path) -> str:
    with pytest.raises(UnmaskError) as caught:
        unmask.load(folder, device="cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change(folder: Path, name: str, how: Callable[[dict], object]) -> None:
    content = json.loads((folder / name).read_text())
    how(content)
    (folder / name).write_text(json.dumps(content))


def header(folder: Path, content: bytes, size: int | None = None) -> None:
    file = folder / "model.safetensors"
    old = file.read_bytes()
    payload = old[8 + int.from_bytes(old[:8], "little") :]
    file.write_bytes((size or len(content)).to_bytes(8, "little") + content + payload)


def retensor(folder: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    how(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def overlapping(folder: Path) -> None:
    old = (folder / "model.safetensors").read_bytes()
    tree = json.loads(old[8 : 8 + int.from_bytes(old[:8], "little")])
    first, second = [name for name in tree if name != "__metadata__"][:2]
    tree[second]["data_offsets"] = tree[first]["data_offsets"]
    header(folder, json.dumps(tree).encode())


def config(field: str, value: object) -> Callable[[Path], None]:
    section, name = field.split(".")

    def apply(folder: Path) -> None:
        change(folder, "model.json", lambda c: c["config"][section].update({name: value}))

    return apply


HEAD = "head.weight"
HOSTILE = {
    "gigantic header": (lambda f: header(f, b"{}", 2**62), "model.safetensors cannot be read"),
    "deep header": (lambda f: header(f, b'{"a":' * 10_000), "model.safetensors cannot be read"),
    "overlapping offsets": (overlapping, "model.safetensors cannot be read"),
    "another shape": (
        lambda f: retensor(f, lambda t: t.update({k: v[..., :1].clone() for k, v in t.items()})),
        "does not fit",
    ),
    "another dtype": (
        lambda f: retensor(f, lambda t: t.update({k: v.double() for k, v in t.items()})),
        "does not fit",
    ),
    "a tensor too many": (
        lambda f: retensor(f, lambda t: t.update(x=torch.ones(1))),
        "x is not expected",
    ),
    "NaN": (
        lambda f: retensor(f, lambda t: next(iter(t.values())).fill_(torch.nan)),
        "holds NaN or infinity",
    ),
    "one infinity": (
        lambda f: retensor(f, lambda t: t["backbone.head.weight"].view(-1)[5].fill_(-torch.inf)),
        "holds NaN or infinity in backbone.head.weight",
    ),
    "wider than memory": (config("backbone.width", 131072), "does not fit"),
    "wider than possible": (
        config("backbone.width", 10**12),
        "backbone.width must be 0 or more, and",
    ),
    "deeper than possible": (
        config("backbone.depth", 10**9),
        "backbone.depth must be 0 or more, and",
    ),
    "narrower than nothing": (
        config("backbone.condition_width", -1),
        "backbone.condition_width must be 1 or more, and",
    ),
    "unknown setting": (config("backbone.widht", 8), "did you mean 'backbone.width'"),
    "deep configuration": (
        lambda f: (f / "model.json").write_text('{"config":' * 100_000),
        "model.json cannot be read",
    ),
    "unlisted configuration": (
        lambda f: change(f, "manifest.json", lambda c: c.pop("model.json")),
        "model.json is not what was written",
    ),
    "unlisted weights": (
        lambda f: change(f, "manifest.json", lambda c: c.pop("model.safetensors")),
        "model.safetensors is not what was written",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_checkpoint_is_refused(model, name):
    apply, message = HOSTILE[name]
    apply(model)
    if not name.startswith("unlisted"):
        reseal(model)
    assert message in refused(model)


@pytest.mark.parametrize("name", ["../../../secret", "/etc/hostname", "a" * 5000, "a\0b"])
def test_a_manifest_that_names_files_outside_is_refused(model, name, tmp_path):
    (tmp_path / "secret").write_text("x")
    change(model, "manifest.json", lambda c: c.update({name: "0" * 64}))
    assert "damaged" in refused(model)


@pytest.mark.parametrize(
    "name", ["model.json", "model.safetensors", "tokenizer/tokenizer.json", "tokenizer"]
)
def test_links_out_of_the_folder_are_not_followed(model, tmp_path, name):
    outside = tmp_path / "outside"
    shutil.move(model / name, outside)
    (model / name).symlink_to(outside)
    message = refused(model)
    assert "leads out of its folder" in message or "is missing" in message


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer", "model"])
def test_links_out_of_a_run_are_not_followed(tmp_path, exported, name):
    run = tmp_path / "run"
    shutil.copytree(exported / "tokenizer", run / "tokenizer")
    (run / "config.yaml").write_text("base: demo\n")
    outside = tmp_path / "outside"
    shutil.move(run / name, outside) if name != "model" else shutil.copytree(exported, outside)
    (run / name).symlink_to(outside)
    assert f"{name} is a link that leads out of its folder" in refused(run)


def test_a_pipe_is_not_waited_for(model):
    (model / "tokenizer" / "tokenizer.json").unlink()
    os.mkfifo(model / "tokenizer" / "tokenizer.json")
    assert "tokenizer" in refused(model)


def tokenizer_json(**changes: object) -> str:
    plain = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": plain} | changes)


TOKENIZERS = {
    "deep": ('{"a":' * 100_000, "cannot be read"),
    "no tokens": (
        tokenizer_json(model={"type": "BPE", "vocab": {}, "merges": []}),
        "its vocabulary is empty",
    ),
    "two with one id": (
        tokenizer_json(model={"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}),
        "two tokens of the tokenizer have the same id",
    ),
    "an id beyond all": (
        tokenizer_json(model={"type": "BPE", "vocab": {"a": 2**32 - 1}, "merges": []}),
        "the vocabulary has 4,294,967,297 ids: choose 1 to",
    ),
    "a negative id": (
        tokenizer_json(model={"type": "BPE", "vocab": {"a": -1}, "merges": []}),
        "cannot be read",
    ),
    "broken pattern": (
        tokenizer_json(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "("},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_hostile_tokenizer_is_refused(tmp_path, name):
    content, message = TOKENIZERS[name]
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UnmaskError, match=message):
        load_tokenizer(tmp_path)


def test_a_pattern_without_end_is_an_error(tmp_path):
    pattern = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(pre_tokenizer=pattern))
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(UnmaskError, match=r"the tokenizer cannot read this text: .*retry-limit"):
        tokenizer.encode("a" * 60 + "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n"
                for i in range(8)
            ),
            "grows to more than 10,000 values",
        ),
        ("a: &a [*a]", "nested too deeply"),
        ("a: " + "[" * 20_000, "nested too deeply"),
        ("x" * 300_000, "larger than 262,144 bytes"),
        ("{[a, b]: 1}", "a key that is no word"),
        ("data: !!python/object/apply:os.system ['true']", "data: a list|data must be a section"),
        ("base: ../../../../etc/passwd", "unknown recipe|is a file, but no recipe"),
        ("training: {steps: 1e400}", "training.steps: '1e400' is not a whole number"),
        (f"training: {{steps: {'9' * 5000}}}", "training.steps: '9+"),
        ("backbone: {depth: 1000000000}", "backbone.depth must be 0 or more, and"),
    ],
    ids=range(10),
)
def test_a_hostile_recipe_is_refused(tmp_path, content, message):
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(UnmaskError, match=message) as caught:
        resolve(load_recipe(str(tmp_path / "a.yaml")))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 2100


def test_an_error_contains_no_control_characters():
    shown = str(UnmaskError("a\nb\x1b[2J\ud800 é 日本" + "x" * 5000))
    assert shown.startswith(r"a\nb\x1b[2J\ud800 é 日本xxx") and len(shown) == 2001


def test_a_run_folder_holds_no_secrets(tmp_path, monkeypatch):
    secrets = {
        name: f"s3cr3t-{name}" for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    shape = [("backbone.width", "8"), ("backbone.depth", "1"), ("backbone.heads", "2")]
    small = [("data.length", "16"), ("training.steps", "2"), ("training.batch", "2")]
    rows = [("training.validation_rows", "2")]
    kind = [("data.tokenizer.kind", "bytes"), ("training.device", "cpu")]
    unmask.train(resolve({}, [*shape, *small, *rows, *kind]), tmp_path / "run", say=lambda _: None)
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) > 8
    for path in written:
        content = path.read_bytes()
        assert b"s3cr3t" not in content, path
        assert b"HF_TOKEN" not in content, path
