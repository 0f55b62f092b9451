"""The benchmarks run at small sizes. benchmarks/README.md has their results at full size."""

import itertools
import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def rows(script: str, *options: str) -> list[dict]:
    """The JSON lines that a script prints in its own process."""
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return parsed(done.stdout)


def parsed(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.fixture
def beside(monkeypatch):
    """Makes benchmarks importable, and restores their changes to the process afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def here(beside, monkeypatch, capsys):
    """Runs a script in this process, where torch is imported already."""

    def run(script: str, *options: object) -> str:
        monkeypatch.setattr(sys, "argv", [script, *map(str, options)])
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_gpu(here, bf16, tmp_path):
    """Every row at a small size, then the table of the rows."""
    file = tmp_path / "rows.jsonl"
    measured = {row["row"]: row for row in parsed(here("gpu.py", "--tiny", "--out", file))}
    assert measured.pop("machine")["matrix_tflops"] > 0
    for row in measured.values():
        fast = row.get("tokens_per_second") or 1 / row["seconds_per_sequence"]
        most = row.get("most_tokens_per_second") or 1 / row["least_seconds_per_sequence"]
        assert 0 < fast < most
    assert 1 <= measured["sample-1024-16"]["calls"] <= 8
    assert measured["likelihood"]["times_training"] > 0
    lines = here("gpu.py", "--table", file).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + len(measured)


@pytest.mark.slow
def test_encoder_decoder(here, tmp_path):
    """Two models train side by side and write targets, which are scored and printed as a table."""
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for side, word in {"de": "Zahl", "en": "number"}.items():
            lines = (
                f"{word} {n} und {word} {n + 1} .\n" for n in range(60 if name == "train" else 5)
            )
            (tmp_path / f"{name}.{side}").write_text("".join(lines))
    file, small = tmp_path / "rows.jsonl", ["--steps", 4, "--batch", 8, "--sources", 5]
    options = ["--tiny", "--data", tmp_path, "--runs", tmp_path / "runs", "--out", file, *small]
    models = ["encoder MDLM, length", "encoder AR"]
    found = rows("encoder_decoder.py", *map(str, options), "--only", *models)
    assert {row["model"] for row in found if row["row"] == "training"} == set(models)
    assert not [row for row in found if row["row"] == "error"]
    scored = tmp_path / "scored.jsonl"
    here("encoder_decoder.py", "--score", file, "--out", scored)
    lines = here("encoder_decoder.py", "--table", scored).splitlines()
    assert len(lines) == 2 + 3  # two decodings of the diffusion model, one of the other


def test_the_gain_of_a_length_head(beside):
    """Whole targets against cut ones, over the same sources; equal targets have no gain."""
    from encoder_decoder import gain

    whole = [f"a dog and {n} cats sit on the wide mat" for n in range(8)]
    ours = {"hypotheses": whole, "references": [[text] for text in whole]}
    other = {"hypotheses": [text[:20] for text in whole]}
    found = gain(ours, other, draws=20)
    assert 0 < found["low"] <= found["difference"] <= 100 and found["sources"] == 8
    assert gain(ours, ours, draws=20)["high"] == 0


def test_style_transfer(here, tmp_path):
    """Reviews become sentences of three disjoint parts; the table names the control."""
    for part, mood in {"train_pos": "good", "train_neg": "bad", "test_pos": "fine"}.items():
        review = f"Film {{}} was a {mood} film for me. It is {mood}.\n"  # one sentence is too short
        (tmp_path / f"{part}.txt").write_text("".join(map(review.format, range(40))))
    here("style_transfer.py", "--prepare", tmp_path / "data", "--text", tmp_path)
    parts = {
        file.stem: parsed(file.read_text()) for file in sorted((tmp_path / "data").glob("*.jsonl"))
    }
    assert {name: len(records) for name, records in parts.items()} == {
        "judge": 40,
        "test": 40,
        "writer": 40,
    }
    texts = [{record["text"] for record in records} for records in parts.values()]
    assert not set.intersection(*texts) and not texts[0] & texts[2]
    assert {record["label"] for record in parts["writer"]} == {"positive", "negative"}
    edit = {"row": "edit", "choice": "random", "share": 0.3}
    edit |= {"accuracy": 0.5, "accuracy_low": 0.3, "accuracy_high": 0.7}
    edit |= {"cosine": 0.9, "cosine_low": 0.8, "cosine_high": 1.0}
    file, picture = tmp_path / "rows.jsonl", tmp_path / "style.png"
    file.write_text("".join(json.dumps({**edit, "weight": w}) + "\n" for w in (0.0, 1.0, 2.0)))
    lines = here("style_transfer.py", "--table", file, "--plot", picture).splitlines()
    assert len(lines) == 2 + 3 and "none: control" in lines[2] and "50 [30, 70]" in lines[3]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_operations(here):
    """The count by hand for the paper's network: 12 layers of 768, 1024 tokens, logits at half of them."""
    import operations

    layer = 2 * (3 + 1 + 4 + 4) * 768 * 768 + 2 * 2 * 1024 * 768
    head = 2 * 768 * 50_257
    setting = operations.Setting(1024, 50_257, 64)
    behind = 2 * (1 + 4 + 4) * 768 * 768  # the last attention: its output and the MLP
    assert operations.training(setting) == 3 * (12 * layer - behind / 2 + head / 2)
    call = 12 * layer - behind * 0.9
    assert operations.filling(setting, 10) == pytest.approx(1024 * (10 * call + head))


@pytest.mark.slow
def test_scaling(here, tmp_path):
    """A point of each kind, an exhausted budget, the tables and the picture."""
    file, picture = tmp_path / "points.jsonl", tmp_path / "scaling.png"
    chosen = ["train-length-1024", "train-size-medium", "sample-steps-8", "sample-batch-1"]
    measured = parsed(here("scaling.py", "--tiny", "--crew", 2, "--out", file, "--only", *chosen))
    assert {row["row"] for row in measured} == {"machine", *chosen}
    assert all("error" not in row for row in measured)
    assert len(parsed(here("scaling.py", "--tiny", "--budget", 0))) == 1
    assert "| B = 1 |" in here("scaling.py", "--table", file)
    here("plot_scaling.py", file, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_curve(here, bf16, tmp_path):
    """Both forms of the model have the same steps up to rounding."""
    data, picture = tmp_path / "data", tmp_path / "curves.png"
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(150)), "utf-8")
    corpus = ["--train", text, "--valid", text, "--vocabulary", 300, "--length", 16]
    here("curve.py", "--prepare", data, *corpus)
    small = ["--data", data, "--shape", 16, 2, 2, "--batch", 4, "--draws", 1, "--steps", 51]
    small += ["--spread", 0.1]  # so that every part of the network has an effect from the start
    start = tmp_path / "start.safetensors"
    here("curve.py", *small, "--only", "on", "--steps", 5, "--save", start)
    for name, options in runs_of_the_curve(2).items():
        out = ["--start", start, "--out", tmp_path / f"{name}.jsonl"]
        assert len(parsed(here("curve.py", *small, *options, *out))) >= 50
    (verdict,) = parsed(here("curve.py", "--compare", tmp_path))
    assert verdict["largest_relative_difference_fp32"] < 1e-5
    assert verdict["within_rounding"] and verdict["seeds"] == 2
    assert abs(verdict["difference"]) < 0.01
    here("plot_curve.py", tmp_path, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_learning(here, tmp_path):
    """Folded and unfolded blocks learn the same in fp32, and the table pairs runs of one seed."""
    data, file, text = tmp_path / "data", tmp_path / "runs.jsonl", tmp_path / "text.txt"
    text.write_text(
        "\n<|endoftext|>\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(300)), "utf-8"
    )
    here("learning.py", "--prepare", data, "--text", text, "--vocabulary", 300, "--length", 16)
    small = ["--data", data, "--shapes", "tiny", "--batch", 4, "--rows", 4, "--draws", 1]
    small += ["--steps", 6, "--at", 4, 6, "--seeds", 2, "--out", file]
    best = "muon-linear-uniform:training.precision=fp32,training.warmup=2"
    own = "self-conditioned:training.precision=fp32,training.warmup=2"
    settings = ["--settings", "fp32", "unfolded-fp32", best, own]
    measured = parsed(here("learning.py", *small, *settings))
    bounds = {(row["setting"], row["seed"]): row["bounds"] for row in measured}
    assert len(bounds) == 8 and all(bound.keys() == {"4", "6"} for bound in bounds.values())
    for seed in (0, 1):
        assert bounds["fp32", seed]["6"] == pytest.approx(
            bounds["unfolded-fp32", seed]["6"], abs=1e-4
        )
        assert bounds[best, seed]["6"] < bounds["fp32", seed]["6"]
    assert all(0 < row["seconds_at"]["4"] < row["seconds"] for row in measured)
    lines = here("learning.py", "--table", file, "--against", "fp32").splitlines()
    assert len(lines) == 2 + 4 and "| 0.0000 ± 0.0000 |" in lines[3]
    (late, *_) = parsed(here("learning.py", *small, *settings, "--seconds", 0))
    assert late["error"] == "no time was left"


def runs_of_the_curve(seeds: int) -> dict[str, list[str]]:
    from curve import runs

    return runs(seeds)


@pytest.mark.slow
def test_dense_logits(beside, monkeypatch, capsys):
    """The time of a small network, and the memory of one variant in its own process."""
    import dense_logits

    peak = dense_logits.peak_mib("ours", 300, 0.1, 1)
    monkeypatch.setattr(dense_logits, "peak_mib", lambda *_: peak)
    monkeypatch.setattr(dense_logits.Run.__init__, "__defaults__", (2,))  # rows
    for name, value in {"LENGTH": 32, "WIDTH": 32, "DEPTH": 2}.items():
        monkeypatch.setattr(dense_logits, name, value)
    options = ["--steps", "1", "--vocabulary", "300", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["dense_logits.py", *options])
    dense_logits.main()
    measured = parsed(capsys.readouterr().out)
    assert {row["dense"] for row in measured} == {"authors", "fused"}
    assert all(row["speedup"] > 0 and row["ours_peak_mib"] > 0 for row in measured)


@pytest.mark.filterwarnings(
    "ignore:constrained_layout"
)  # the values of two steps are far above the picture
def test_methods(beside, monkeypatch, capsys, tmp_path):
    """The recipes on a page of text, with networks of one layer."""
    import methods

    text, picture, resolve = tmp_path / "text.txt", tmp_path / "methods.png", methods.resolve
    text.write_text("\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(400)), "utf-8")
    small = {"data.train": text, "data.separator": "line", "data.cache": tmp_path / "cache"}
    small |= {"data.length": 16}
    small |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 2, "training.batch": 4}
    own = [(name, str(value)) for name, value in small.items()]
    monkeypatch.setattr(methods, "resolve", lambda tree, given: resolve(tree, [*given, *own]))
    options = ["--steps", "2", "--draws", "1", "--runs", tmp_path, "--picture", picture]
    monkeypatch.setattr(sys, "argv", ["methods.py", *map(str, options)])
    methods.main()
    measured = parsed(capsys.readouterr().out)
    assert [row["method"] for row in measured] == ["MDLM", "SEDD", "D3PM", "autoregressive"]
    assert all(0 < row["bound"] < 20 for row in measured)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_toy_samplers(here):
    options = [
        "--rows",
        "400",
        "--steps",
        "1",
        "8",
        "--samplers",
        "ancestral",
        "first_hitting",
        "remask",
    ]
    measured = parsed(here("toy_samplers.py", *options))
    distances: dict[str, list[float]] = {}
    for row in measured:
        distances.setdefault(row["sampler"], []).append(row["distance"])
    perfect, exact = distances.pop("perfect draws"), distances.pop("first_hitting")
    assert abs(exact[0] - perfect[0]) < 0.06
    assert len(distances) == 6  # ancestral, and remask with its settings
    assert all(one > eight + 0.1 and eight > perfect[0] for one, eight in distances.values())


def test_naive_sampler(here):
    options = ["--timed", "2", "--length", "16", "--vocabulary", "100", "--batch", "1", "2"]
    measured = parsed(here("naive_sampler.py", *options))
    assert [(row["batch"], row["naive"]) for row in measured] == [
        (batch, naive) for batch in (1, 2) for naive in ("ddpm", "ddpm_cache")
    ]
    assert all(row["speedup"] > 0 for row in measured)


def test_precisions(beside, bf16, monkeypatch, capsys):
    import precisions

    monkeypatch.setattr(precisions, "NETWORKS", [(16, 1, 2, 50, 16, 2)])
    monkeypatch.setattr(precisions, "native_precisions", lambda device: ("bf16", "fp32"))
    monkeypatch.setattr(sys, "argv", ["precisions.py", "--threads", "1", "--steps", "1"])
    precisions.main()
    (row,) = parsed(capsys.readouterr().out)
    assert row["width"] == 16 and min(row["fp32_ms"], row["bf16_ms"], row["ratio"]) > 0


def test_tokenizing(here, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat, and the dog lay on the rug.\n" * 2000)
    measured = parsed(here("tokenizing.py", text, "--separator", "line", "--repeats", 1))
    assert [row.pop("tokenizer") for row in measured] == ["bpe", "bytes", "characters"]
    ways = {"cold", "warm", "packed"}
    for row in measured:
        assert {way.partition("_")[0] for way in row} - {"library"} == ways
        assert all(rate > 0 for rate in row.values())
    assert "library_mb_a_second" in measured[0]


def test_imports():
    measured = rows("imports.py", "--repeats", "1")
    assert [row["way"] for row in measured] == ["import unmask", "unmask --help"]
    assert all("torch" not in row["slow"] for row in measured)


@pytest.mark.slow
def test_vote_kills():
    command = [sys.executable, str(BENCHMARKS / "vote_kills.py"), "--kills", "6", "--seed", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"6 kills, \d+ votes with a response: 0 lost, 0 twice", done.stdout)


@pytest.mark.slow
def test_learned_order(here, run, tmp_path):
    (tmp_path / "text.txt").write_text("the king sat on the hill and the queen ran.\n\n" * 40)
    small = [
        "--length",
        "16",
        "--calls",
        "2",
        "4",
        "--updates",
        "2",
        "--batch",
        "2",
        "--group",
        "2",
    ]
    file, policy = tmp_path / "rows.jsonl", tmp_path / "order.safetensors"
    small += ["--out", file, "--policy", policy]
    measured = parsed(here("learned_order.py", run, "--data", tmp_path / "text.txt", *small))
    orders = ["random", "confidence", "margin", "entropy", "learned"]
    assert [row["order"] for row in measured] == orders * 2 and policy.exists()
    assert all(row["nats"] > 0 and row["rows"] > 1 for row in measured)
    picture = tmp_path / "order.png"
    lines = here("learned_order.py", "--table", file, "--plot", picture).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 * 2 + 5 + 4
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_toy_orders(here):
    """The learned order loses nothing, and a random one does. One token at a time, every order is exact."""
    measured = {row["row"]: row for row in parsed(here("toy_orders.py", "--languages", 2))}
    assert abs(measured["learned"]["largest"]) < 0.02 < measured["random"]["loss"]
    assert all(row["error_one_by_one"] < 1e-5 for row in measured.values())


@pytest.mark.slow
def test_kills():
    command = [sys.executable, str(BENCHMARKS / "kills.py"), "--kills", "2", "--steps", "14"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"2 kills, [12] inside a save: 0 of 1\d files differ", lines[-1])
    names = {line.split()[-1].rpartition("/")[2] for line in lines if line.startswith("equal")}
    weights = {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}
    assert weights | {"log.jsonl"} <= names


@pytest.mark.slow
def test_corruptions(beside, capsys):
    import corruptions

    assert corruptions.main(["--count", str(len(corruptions.KINDS))]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^all +refused with the reason +1$", printed, re.MULTILINE)
    assert "7 corruptions, 0 not handled" in printed


def test_saving(beside, capsys, tmp_path):
    import saving

    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "base: demo\nbackbone: {width: 32, depth: 1}\ndata: {tokenizer: {kind: bytes}}\n"
        "training: {steps: 4, batch: 4, save_every: 2, validation_rows: 4, device: cpu}\n"
    )
    assert saving.main(["--recipe", str(recipe)]) == 0
    without, with_them = parsed(capsys.readouterr().out)
    assert (without["checkpoints"], with_them["checkpoints"]) == (0, 2)
    assert with_them["megabytes_each"] > 0 == without["megabytes_each"]
    assert with_them["loop_stood_still"] >= without["loop_stood_still"] == 0


@pytest.mark.parametrize("measured, lost", [(1.0, ""), (0.76, ""), (0.7, "first: 0.70")])
def test_the_smoke_test_fails_a_quarter_below_a_floor(measured, lost, beside, monkeypatch, capsys):
    import smoke

    ratios = [smoke.Ratio("first", 1.0, lambda: measured), smoke.Ratio("last", 2.0, lambda: 2.5)]
    monkeypatch.setattr(smoke, "RATIOS", ratios)
    assert smoke.main() == bool(lost)
    said = capsys.readouterr()
    assert [json.loads(line)["ratio"] for line in said.out.splitlines()] == ["first", "last"]
    assert lost in said.err and bool(said.err) == bool(lost)


def test_quality_runs_the_remaining_jobs(beside, tmp_path, capsys):
    """A job waits for the jobs that it needs. Finished jobs are not repeated, failed jobs are."""
    from quality import Job, work

    def job(name: str, script: str, *after: str) -> Job:
        return Job(name, ["sh", "-c", f"echo {name} >> {tmp_path / 'order'}; {script}"], after)

    jobs = [
        job("second", "echo 2", "first"),
        job("first", "echo 1"),
        job("broken", "echo no >&2; exit 3"),
        job("never", "echo 4", "broken"),
    ]
    for attempts in (["first", "second", "broken"], ["broken"]):
        (tmp_path / "order").unlink(missing_ok=True)
        assert work(jobs, 1, tmp_path) == 2  # the broken one, and the one that waits for it
        assert (tmp_path / "order").read_text().split() == attempts
        assert [row["job"] for row in parsed(capsys.readouterr().out)] == attempts
    assert (tmp_path / "second.json").read_text() == "2\n"
    assert not (tmp_path / "broken.json").exists()
    assert (tmp_path / "broken.log").read_text().count("no\n") == 2
    third = job("third", "echo 3", "second")  # another call has finished `second`
    assert work([third], 1, tmp_path) == 0


def test_the_jobs_on_the_quality_page_exist(beside, capsys, monkeypatch):
    """Every `--only` on the page names existing jobs, jobs need existing jobs, and a wrong name is an error."""
    import quality

    jobs = {job.name: job for job in quality.Plan(Path("data"), Path("runs")).jobs()}
    assert all(jobs.keys() >= set(job.after) for job in jobs.values())
    page = (BENCHMARKS / "quality.md").read_text(encoding="utf-8").replace("\\\n", " ")
    asked = re.findall(r"quality\.py DATA --only ([^`]+)", page)
    assert len(asked) > 3
    for names in asked:  # expanded by a shell
        command = ["bash", "-c", f"echo {' '.join(names.split())}"]
        assert jobs.keys() >= set(subprocess.check_output(command, text=True).split())
    monkeypatch.setattr(sys, "argv", ["quality.py", "data", "--only", "ar", "typo"])
    with pytest.raises(SystemExit):
        quality.main()
    assert "no job typo: --list prints all" in capsys.readouterr().err


def test_markov_models_of_dna(beside, tmp_path):
    """Smoothed counts as a loop computes them, and a context that decides the next base."""
    import dna_markov
    import numpy as np

    rows = np.random.default_rng(0).integers(0, 5, (40, 30)).astype(np.uint8)
    model = dna_markov.Markov.fit([rows], 2)
    nats = list(model.nats(rows))
    row, place = 3, next(i for i in range(2, 30) if (rows[3, i - 2 : i + 1] < 4).all())
    p = 0.25
    strands = [rows, np.where(rows < 4, 3 - rows, rows)[:, ::-1]]
    for k in range(3):
        context, base = tuple(rows[row, place - k : place]), rows[row, place]
        counts = np.zeros(4)
        for strand in strands:
            for line in strand:
                for i in range(k, 30):
                    if tuple(line[i - k : i]) == context and line[i] < 4:
                        counts[line[i]] += 1
        p = (counts[base] + model.alphas[k] * p) / (counts.sum() + model.alphas[k])
        assert nats[k][row, place] == pytest.approx(-np.log(p))
    assert all((found[rows == 4] == 0).all() for found in nats)
    repeat = np.tile([0, 1, 3, 3, 2], (40, 12)).astype(np.uint8)
    *_, last = dna_markov.Markov.fit([repeat], 4, strands=1).nats(repeat)
    assert last[:, 4:].max() < 0.1


def test_intervals_of_sequences(beside, monkeypatch):
    """Every position on either strand, also across two blocks and in lower case. Short sequences have none."""
    import dna_intervals
    import numpy as np

    bases = "".join(np.random.default_rng(0).choice(list("ACGT"), 3000))
    genome = (bases + "N" * 50 + bases[100:160]).encode()
    other = dna_intervals.reverse_complement(bases[2000:2040])
    wanted = [bases[100:160].lower(), other, "N" + bases[990:1030], bases[:23], "A" * 30]
    found = {(100, 160), (3050, 3110), (2000, 2040)}
    assert dna_intervals.intervals(genome, wanted) == found
    monkeypatch.setattr(dna_intervals, "_BLOCK", 110)
    assert dna_intervals.intervals(genome, wanted) == found


@pytest.mark.slow
def test_dna_speed(here):
    """The scan alone, then each network in training and decoding."""
    measured = {row["row"]: row for row in parsed(here("dna_speed.py", "--tiny"))}
    for name in ("mamba", "mamba-torch", "caduceus", "hyena", "dit"):
        assert measured[f"train-32-{name}"]["tokens_per_second"] > 0
    assert measured["decode-32-mamba"]["ms_per_token"] > 0
    assert 0 < measured["scan-32-torch"]["forward_bandwidth"] < 1


def test_measures_of_enhancers(beside):
    """Distance to the nearest sequence of either strand, spectra of k-mers, and the content of G and C."""
    import dna_enhancers
    import numpy as np

    from unmask.data.tokenizers.dna import reverse_complement

    random = np.random.default_rng(0)
    train = ["".join(random.choice(list("ACGT"), 200)) for _ in range(20)]
    copy = reverse_complement(train[7])
    changed = "A" * 15 + copy[15:]
    expected = sum(a != b for a, b in zip(copy, changed, strict=True))
    bases, known = dna_enhancers.codes([copy, changed]), dna_enhancers.codes(train)
    assert dna_enhancers.nearest(bases, known, torch.device("cpu")).tolist() == [0, expected]
    one = dna_enhancers.spectrum(dna_enhancers.codes(["AC" * 100]))
    assert one.sum() == pytest.approx(1)
    assert dna_enhancers.divergence(one, one) == 0
    poly = [dna_enhancers.spectrum(dna_enhancers.codes([base * 200])) for base in "AC"]
    assert dna_enhancers.divergence(*poly) == pytest.approx(1)  # no k-mer in common
    assert dna_enhancers.gc(dna_enhancers.codes(["GCGCAAAA"])) == 0.5


def test_dna_enhancers(here, tmp_path):
    """The oracle finds planted motifs. Each cell type is measured at weight 1 first."""
    import dna_enhancers
    import numpy as np

    random = np.random.default_rng(0)
    motifs = {"K562": "AGATAAGGACCGTTA", "HepG2": "CAAAGTCCAGTTTGG"}

    def sequence(cell: str) -> str:
        bases = "".join(random.choice(list("ACGT"), 200))
        for start in random.choice(12, 3, replace=False) * 15:
            bases = bases[:start] + motifs[cell] + bases[start + 15 :]
        return bases

    rows = [(sequence(cell), cell) for _ in range(200) for cell in motifs]
    oracle = dna_enhancers.Oracle(sorted(motifs), torch.device("cpu"), 32)
    oracle.train(rows, 10)
    for cell in motifs:
        bases = dna_enhancers.codes([sequence(cell) for _ in range(50)])
        other = 3 - bases[:, ::-1]
        judged, turned = oracle.judge(bases, cell), oracle.judge(other, cell, "_real")
        assert judged["oracle"] > 0.9 and judged["oracle_probability"] > 0.8
        assert judged["oracle_answers"][cell] == judged["oracle"]
        assert turned["oracle_probability_real"] == pytest.approx(judged["oracle_probability"])

    data, splits = tmp_path / "data.tsv", ["training"] * 8 + ["validation", "test"]
    lines = [f"{bases}\t{cell}_1\t{splits[i // 2 % 10]}" for i, (bases, cell) in enumerate(rows)]
    data.write_text("\n".join(["sequence\tTAG\tdata_label", *lines[:100]]) + "\n")
    options = ["--tiny", "--data", data, "--runs", tmp_path / "runs", "--guidance", 2, 1]
    first, again = here("dna_enhancers.py", *options), here("dna_enhancers.py", *options)
    measured = parsed(first)
    assert [(row["guidance"], row["cell"]) for row in measured] == [
        (1, "HepG2"), (1, "K562"), (2, "HepG2"), (2, "K562"),
    ]  # fmt: skip
    shares = {row["cell"]: row["oracle_real"] for row in measured}
    assert measured[0]["oracle_real_balanced"] == pytest.approx(sum(shares.values()) / 2)
    assert "oracle, epoch" in first and "oracle, epoch" not in again
    assert parsed(again) == measured


@pytest.mark.slow
def test_dna_tables(here, tmp_path):
    """Every row of table 6 at a small size, and a second run that repeats none."""
    first = here("dna_tables.py", "--tiny", "--runs", tmp_path)
    rows = {row["row"]: row for row in parsed(first) if row.get("table") == 6}
    assert {"markov-11", "mamba-ar", "hyena-ar", "caduceus-sedd", "caduceus-mdlm"} <= rows.keys()
    assert all(1 < row["perplexity"] < 20 for row in rows.values())
    assert not [
        row
        for row in parsed(here("dna_tables.py", "--tiny", "--runs", tmp_path))
        if row.get("table") == 6
    ]


@pytest.mark.slow
def test_dna_all(here, tmp_path):
    """One command has a result of every kind; a second one continues from the results of the first."""
    import lzma

    import numpy as np
    from dna_all import CELLS
    from machine import read_rows

    import unmask
    from unmask.evaluation.suites.genomic_sets import OFFICIAL

    random = np.random.default_rng(0)
    rows = ["".join(random.choice(list("ACGT"), 200)) for _ in range(80)]
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for task, part in itertools.product(OFFICIAL, ("train", "test")):
        lines = [f"{label}\t{rows[i]}" for i, label in enumerate(["a", "b"] * 10)]
        (data / f"{task}.{part}.tsv").write_text("\n".join(["label\tsequence", *lines]) + "\n")
    splits = ["training"] * 8 + ["validation", "test"]
    lines = [f"{bases}\t{'KH'[i % 2]}_1\t{splits[i // 2 % 10]}" for i, bases in enumerate(rows)]
    table = "\n".join(["sequence\tTAG\tdata_label", *lines]) + "\n"
    (data / CELLS).write_bytes(lzma.compress(table.encode()))

    def command(seconds: int, runs: str) -> None:
        options = ["--tiny", "--data", data, "--out", out, "--runs", tmp_path / runs]
        here("dna_all.py", *options, "--seconds", seconds)

    command(3000, "runs")
    results = read_rows(out / "results.jsonl")
    assert {row["table"] for row in results} >= {6, 7}
    assert (out / "sequences.fa").read_text().count(">") == 20
    assert {row["cell"] for row in read_rows(out / "enhancers.jsonl")} == {"K", "H"}
    assert read_rows(out / "speed.jsonl")[0]["row"] == "machine"
    for name in ("results.jsonl", "models.tar"):
        (out / name).rename(data / name)
    command(0, "again")  # no time for anything but the copies
    assert read_rows(out / "results.jsonl") == results
    assert unmask.load(tmp_path / "again" / "caduceus-mdlm-0").config.method.name == "mdlm"
    assert (out / "models.tar").stat().st_size > 0


@pytest.mark.slow
def test_control_all(here, tmp_path):
    """Each part writes its results, and the models of code come back as archives."""
    import tarfile

    from control_all import PAIRS
    from machine import read_rows

    import unmask

    data, out = tmp_path / "data", tmp_path / "out"
    for archive in PAIRS.values():
        files = tmp_path / archive
        files.mkdir()
        for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
            for side, word in {"de": "Zahl", "en": "number"}.items():
                (files / f"{name}.{side}").write_text(f"{word} 1\n{word} 2\n{word} 3\n" * 20)
        for name in ("trainset", "devset", "testset_w_refs"):
            (files / f"{name}.csv").write_text("mr,ref\n" + "name[Zizzi],Zizzi is a pub.\n" * 60)
        data.mkdir(exist_ok=True)
        with tarfile.open(data / archive, "w:xz") as packed:
            for file in files.iterdir():
                packed.add(file, file.name)
    here("control_all.py", "--tiny", "--data", data, "--out", out, "--runs", tmp_path / "runs")
    for name in ("code", "lengths", "multi30k", "e2e"):
        found = read_rows(out / f"{name}.jsonl")
        assert found and not [row for row in found if row["row"] == "error"]
    assert read_rows(out / "sizes" / "results.jsonl")
    (tmp_path / "code.tar").write_bytes((out / "code.tar.0").read_bytes())
    with tarfile.open(tmp_path / "code.tar") as archive:
        archive.extractall(tmp_path / "models", filter="data")
    assert unmask.load(tmp_path / "models" / "code").config.method.name == "mdlm"


def test_glue_table(here, tmp_path):
    """Rows are trained, measured and scored, and a second call repeats nothing."""
    import transformers

    encoder, task = tmp_path / "encoder", tmp_path / "data" / "glue" / "RTE"
    task.mkdir(parents=True)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(encoder)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["the", "cat", "sat", "on", "mat", "a", "dog"],
    ]
    words += [f"w{i}" for i in range(40 - len(words))]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    labels = ("entailment", "not_entailment")
    lines = [f"{i}\tthe cat sat\ta dog\t{labels[i % 2]}" for i in range(16)]
    for part in ("train", "dev"):
        (task / f"{part}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]))
    runs = tmp_path / "runs"
    options = ["--tiny", "--data", tmp_path / "data", "--encoder", encoder, "--runs", runs]
    options += ["--rows", "encoder", "encoder-mdlm", "--seeds", 1]
    done = [(row["kind"], row["row"]) for row in parsed(here("glue_table.py", *options))]
    assert {("glue", "encoder"), ("glue", "encoder-mdlm"), ("pseudo", "encoder")} <= set(done)
    assert parsed(here("glue_table.py", *options)) == []
    table = here("glue_table.py", "--runs", runs, "--table")
    assert "| encoder-mdlm |" in table and "≤" in table


@pytest.mark.parametrize(
    "rows", [["mdlm", "ssd-lm", "bert-mouth"], pytest.param([], marks=pytest.mark.slow)]
)
def test_baselines_table(here, tmp_path, rows):
    """Rows are tuned, trained, measured, timed and sampled once; a judge scores their texts later."""
    import baselines_table
    from tiny_judge import save_judge

    rows = rows or list(baselines_table.ROWS)
    options = ["--tiny", "--out", tmp_path, "--only", *rows]
    found = parsed(here("baselines_table.py", *options))
    for name in rows:
        own = [row for row in found if row["row"] == name]
        count = Counter(row["table"] for row in own if row["table"] != "texts")
        figures = 4 if name == "bert-mouth" else 2
        assert count == {"tuning": 2, "finalist": 2, 1: figures, "speed": 3}
    certificates = {row["row"]: row["certificate"] for row in found if row["table"] == 1}
    assert certificates["mdlm"] == "upper" and certificates["ssd-lm"] == "none"
    assert parsed(here("baselines_table.py", *options)) == []
    # as after an interruption between training and measurement, in the middle of a line
    file, lost = tmp_path / "results.jsonl", {"table": 1, "row": "mdlm", "seed": 1}
    lines = file.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not lost.items() <= json.loads(line).items()]
    file.write_text("".join(kept) + '{"table": 1, "row": "mdlm", "se\n', "utf-8")
    (again,) = parsed(here("baselines_table.py", *options))
    assert again in found
    picture = tmp_path / "frontier.png"
    judge = ["--judge", save_judge(tmp_path / "judge"), "--table", "--plot", picture]
    shown = here("baselines_table.py", "--out", tmp_path, *judge, "--samples", 1)
    texts = [row for row in found if row["table"] == "texts"]
    assert len(parsed(shown)) == len(texts) + 1  # and real text
    for line in (
        "| MDLM | upper | ≤ ",
        "| BERT-Mouth | pseudo | ",
        "Table 5 in small",
        "## SSD-LM",
    ):
        assert line in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_failure_modes(here, run, tmp_path):
    """Names are known within one story and unknown in the next. A token that is written alone has gain 0."""
    names = [f"{first}{second}m" for first in "ABCDEFGH" for second in "aeiou"]
    story = "and {0} " * 5  # 40 tokens of one byte
    stories, file = tmp_path / "stories.txt", tmp_path / "rows.jsonl"
    stories.write_text("\n<|endoftext|>\n".join(map(story.format, names)))
    options = ["--tiny", "--models", run, run, "--real", stories, "--out", file]
    found = {row["row"]: row for row in parsed(here("failure_modes.py", *options))}
    assert {row["mode"] for row in found.values()} == {
        *("repetition", "context", "early", "dependence")
    }
    assert found["repetition/real stories"]["repetition"] > 0
    one, several = (found[f"context/{name}"] for name in ("one real story", "several real stories"))
    assert one["known"][-1][0] == 1 and several["known"][-1][0] < 1
    alone, together = (
        found[f"dependence/{name}, temperature 1"]
        for name in ("entropy_bound:gamma=0", "entropy_bound:gamma=1000")
    )
    assert alone["together"] == 1 and alone["gain"] == 0
    assert together["calls"] == 1 and together["together"] > 8
    assert parsed(here("failure_modes.py", *options)) == []
    picture = tmp_path / "failure.png"
    shown = here("failure_modes.py", "--table", file, "--plot", picture)
    assert sum(line.startswith("|") for line in shown.splitlines()) == 4 * 2 + len(found)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_sizes(here, tmp_path):
    """Two sizes of both methods and two schedules, further seeds at the ends, then tables and picture."""
    from tiny_judge import save_judge

    rows = [f"{method}-{size}" for size in ("40M", "1M") for method in ("mdlm", "ar")]
    schedules = ["schedule-loglinear", "schedule-cosine"]
    options = ["--tiny", "--out", tmp_path, "--only", *rows, *schedules]
    found = parsed(here("sizes.py", *options))
    seeds = [(row["row"], row["seed"]) for row in found if row["table"] == 1]
    assert sorted(seeds) == sorted(
        [*((r, s) for r in rows for s in (1, 2)), *((s, 1) for s in schedules)]
    )
    certificates = {row["row"]: row["certificate"] for row in found if row["table"] == 1}
    assert certificates["ar-1M"] == "exact" and certificates["mdlm-1M"] == "upper"
    assert len({row["tokens"] for row in found if row["table"] == 1}) == 1
    parameters = {row["row"]: row["non_embedding"] for row in found if row["table"] == 1}
    assert parameters["mdlm-40M"] > 2 * parameters["mdlm-1M"]
    texts = [(row["row"], row["sampler"]) for row in found if row["table"] == "texts"]
    assert texts.count(("mdlm-40M", "predictor_corrector")) == 1 and len(texts) == 2 * (5 + 1) + 2
    assert parsed(here("sizes.py", *options)) == []
    picture, judge = tmp_path / "sizes.png", save_judge(tmp_path / "judge")
    shown = here("sizes.py", "--out", tmp_path, "--judge", judge, "--table", "--plot", picture)
    lines = [line for line in shown.splitlines() if line.startswith("| ")]
    first = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert first[:3] == ["size", "1M", "40M"]
    assert {"loglinear", "geometric", "confidence", "left_to_right"} <= set(first)
    assert "MDLM − AR at 40M minus that at 1M: " in shown and "Real text: " in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_story_writer(beside):
    """Each next token is the likeliest one, also after rows whose story has ended have left the batch."""
    from shipped_models import StoryWriter

    import unmask

    model = unmask.load("stories-ar", device="cpu")
    method, tokenizer = model.method, model.tokenizer
    first = iter(
        [torch.tensor([tokenizer.encode(word)[0] for word in ("Once", "One", "Tom", "A")])]
    )
    writer = StoryWriter(model, 4, 256, greedy=True)
    writer._chosen = lambda log_next, uniforms: next(first, log_next.argmax(-1))
    stories = writer.batch()
    assert len({len(story) for story in stories}) > 1
    for story in stories:
        x = torch.tensor([[tokenizer.vocabulary.bos_id, *story, tokenizer.vocabulary.eos_id]])
        with torch.inference_mode():
            log_next = method.log_next(method.backbone.features(method.inputs(x))[0])[2:]
        chosen = log_next.gather(1, x[0, 2:, None])[:, 0]
        torch.testing.assert_close(chosen, log_next.amax(1), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_shipped_models(tmp_path):
    """All stages with tiny networks, then a second command that repeats none, then the joined models."""
    import unmask

    script, folder = BENCHMARKS / "shipped_models.py", tmp_path / "out"
    command = [sys.executable, str(script), "--tiny", "--steps", "30", "--wiki", "0.3"]
    command += ["--runs", str(tmp_path / "runs"), "--out", str(folder)]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
        for _ in range(2)
    )
    assert "not finished: none" in first and "starts" not in second
    subprocess.run(
        [sys.executable, str(script), "--join", str(folder), "--to", str(tmp_path / "models")],
        check=True,
    )
    for name in ("wiki", "stories", "stories-ar"):
        model = unmask.load(tmp_path / "models" / name, device="cpu")
        assert (
            model.tokenizer.fingerprint == unmask.load("wiki", device="cpu").tokenizer.fingerprint
        )
    pair = [str(tmp_path / "models" / name) for name in ("wiki", "stories")]
    mean = str(tmp_path / "models" / "mean")
    subprocess.run([sys.executable, str(script), "--average", *pair, "--to", mean], check=True)
    a, b, middle = (
        unmask.load(name, device="cpu").method.backbone.embedding.weight for name in (*pair, mean)
    )
    torch.testing.assert_close(middle, (a + b) / 2, atol=0.02, rtol=0)
