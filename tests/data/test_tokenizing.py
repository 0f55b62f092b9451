"""Tokenising gives the same rows if it is killed, split over processes, or run twice at once."""

import errno
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask.data import load
from unmask.data.data_config import DataConfig
from unmask.data.documents.pairs import Pair
from unmask.data.load import load_data, rows_from
from unmask.data.rows import encode as blocks
from unmask.data.rows import row_cache as cache
from unmask.data.rows.packing import PACKERS, pack
from unmask.data.rows.row_counts import Place, Totals
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskWarning

SCRIPT = Path(__file__).with_name("killed_tokenizing.py")


@pytest.fixture
def corpus(tmp_path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"word{i} " * (i % 7 * 9 + 1) for i in range(200)))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_tokenising_resumes(corpus, tmp_path):
    command = [sys.executable, SCRIPT, corpus, tmp_path, "wrap,pad", *"71850"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for packing, printed in {"wrap": lines[:8], "pad": lines[8:]}.items():
        made, _, *killed, made_at_last, ended = printed
        assert all(line.startswith("status -9 ") for line in killed) and len(killed) == 4
        assert not any(f"{name}.json'" in line for line in killed for name in "0123456789abcdef")
        assert ended.startswith("status 0 ")
        assert files(tmp_path / f"{packing}-killed") == files(tmp_path / f"{packing}-whole")
        # it resumed from the last note, at most two blocks before each kill, and repeated those
        assert int(made_at_last) <= int(made) - 15


def test_data_after_the_last_note_is_written_again(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 300)
    monkeypatch.setattr(blocks, "_PIECE", 100)
    monkeypatch.setattr(cache, "_PROGRESS_BLOCKS", 2)
    config = DataConfig(str(corpus), str(corpus), tokenizer=TokenizerConfig("bytes"), length=20)
    load_data(replace(config, cache=str(tmp_path / "whole")))

    def interrupted(*args, **options):
        for number, table in enumerate(pack(*args, **options)):
            if number == 5:
                raise KeyboardInterrupt
            yield table

    stopped = replace(config, cache=str(tmp_path / "stopped"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(load, "pack", interrupted)
        load_data(stopped)
    (part,) = (tmp_path / "stopped").glob("*.part")
    (note,) = (tmp_path / "stopped").glob("*.part.json")
    assert part.stat().st_size > json.loads(note.read_text())["size"] > 0
    load_data(stopped)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def pairs(documents: list[str]) -> list[str]:
    return [Pair(document[:5], document) for document in documents]


@pytest.mark.parametrize(
    "packing", [name for name in PACKERS if "chats" not in name]
)  # no template
@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_packing_resumes_at_any_position(tokenizers, packing, kind, monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 30)
    monkeypatch.setattr(blocks, "_PIECE", 20)
    documents = ["the cat sat on the mat", "é", "a b c d e f g h i j k l m", "dogs and cats " * 9]
    documents = pairs(documents) if packing == "pairs" else documents
    options = (tokenizers[kind], 24 if packing == "pairs" else 9, packing)
    totals = Totals()
    whole = list(pack(documents, *options, totals))
    for stop in range(len(whole)):
        place, before = Place(), Totals()
        begun = pack(documents, *options, before, place=place)
        first = [next(begun) for _ in range(stop + 1)]
        settled, onward = place.settled(before), Place(place.pieces, place.tokens)
        rest = list(pack(documents, *options, settled, place=onward))
        assert np.array_equal(np.concatenate([*first, *rest]), np.concatenate(whole))
        assert settled == totals


PARALLEL = """
import hashlib, os, signal, sys
import numpy as np
from unmask.data.rows import encode as blocks
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals

if __name__ == "__main__":
    blocks._BLOCK = 500
    documents, tokenizer = open(sys.argv[1]).read().split("\\n"), load_tokenizer(sys.argv[2])
    with blocks.encoding(tokenizer, 2) as encode:
        tables = list(pack(documents, tokenizer, 20, "wrap", totals := Totals(), encode=encode))
        print(hashlib.sha256(np.concatenate(tables).tobytes()).hexdigest(), totals, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_several_processes_give_the_rows_of_one_and_end_with_their_parent(
    corpus, tokenizers, tmp_path
):
    tokenizer = tokenizers["bpe"].with_labels(["x"])
    tokenizer.save(tmp_path / "tokenizer")
    script = tmp_path / "script.py"
    script.write_text(PARALLEL)
    # the pipe closes when the last process that holds it has ended
    done = subprocess.run(
        [sys.executable, script, corpus, tmp_path / "tokenizer"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert done.returncode == -9
    tables = list(pack(corpus.read_text().split("\n"), tokenizer, 20, "wrap", totals := Totals()))
    expected = hashlib.sha256(np.concatenate(tables).tobytes()).hexdigest()
    assert done.stdout.strip() == f"{expected} {totals}"


def test_without_semaphores_one_process_tokenises(tokenizers, monkeypatch):
    def pool(*settings: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(blocks, "ProcessPoolExecutor", pool)
    with (
        pytest.warns(
            UnmaskWarning, match=r"tokenising with one process: .*\(Read-only file system\)"
        ),
        blocks.encoding(tokenizers["bytes"], 2) as encode,
    ):
        assert [[ids.tolist() for ids in block] for block in encode([["ab"], ["c"]])] == [
            [[97, 98]],
            [[99]],
        ]


def test_two_at_once_tokenise_once(corpus, monkeypatch):
    made = []
    monkeypatch.setattr(load, "pack", lambda *a, **o: (made.append(1), pack(*a, **o))[1])
    config = DataConfig(tokenizer=TokenizerConfig("bytes"), length=20, separator="line")
    tokenizer = load_data(replace(config, train="builtin:pydoc", length=64)).tokenizer
    made.clear()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: rows_from(str(corpus), tokenizer, config), range(4)))
    assert len(made) == 1 and len({len(rows) for rows in found}) == 1


def test_a_tokenizer_learns_from_a_spread_sample(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{'early' if i < 500 else 'later'} {i}" for i in range(1000)))
    seen: list[str] = []
    config = DataConfig(str(path), str(path), separator="line", length=9)
    with pytest.MonkeyPatch.context() as patch:
        build = load.build_tokenizer

        def spy(config, texts):
            seen.extend(texts)
            return build(config, seen)

        patch.setattr(load, "build_tokenizer", spy)
        load_data(replace(config, tokenizer=TokenizerConfig("bpe", 300, sample=2000)))
        assert 1800 < sum(map(len, seen)) < 2200
        assert abs(sum(text.startswith("early") for text in seen) / len(seen) - 0.5) < 0.05
        seen.clear()
        load_data(replace(config, tokenizer=TokenizerConfig("bpe", 300)))
        assert len(seen) == 1000
