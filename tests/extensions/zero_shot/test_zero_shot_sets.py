"""Rows of every zero-shot set against streams worked by hand,
and GPT-2's token counts of the real sets.

The counts of the whole sets are checked only if UNMASK_DATA names a folder with `zero-shot` and
`tokenizers/gpt2`. The other tests read fixtures/gpt2-part.json. It holds the merges of GPT-2's BPE
(MIT) that can apply to the lines below, with their real ids. These lines need no other merge,
so the ids are GPT-2's own.
"""

import json
import lzma
import os
from itertools import chain
from pathlib import Path

import pytest
from hub_dataset import HubDataset
from tokenizers import models

from unmask.data.data_config import DataConfig
from unmask.data.documents.detokenizers import DETOKENIZERS
from unmask.data.load import rows_from
from unmask.data.rows.token_rows import Rows
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer, byte_level
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.extensions.zero_shot.benchmark_files import Lines, file_corpus
from unmask.extensions.zero_shot.zero_shot_sets import (
    MORE_SETS,
    SETS,
    coverage,
    find,
    zero_shot_set,
)
from unmask.vocabulary import Vocabulary

FIXTURE = Path(__file__).parents[2] / "fixtures" / "gpt2-part.json"
BYTES = ByteTokenizer()
EOS = "\0"  # in the streams below

# name, its file, the content of the file, the records of the hub, the stream of the rows
BY_HAND = [
    (
        "ptb",
        "ptb.valid.txt",
        " the firm 's N units \n it did n't sell <unk> \n",
        [{"sentence": "the firm 's N units"}, {"sentence": "it did n't sell <unk>"}],
        "the firm's 1 unitsit didn't sell ?",
    ),
    (
        "wikitext",
        "wiki.valid.raw",
        " \n = Old Mill = \n\n A mill ( or two ) , built in 1 @,@ 874 . \n",
        [
            {"text": ""},
            {"text": " = Old Mill = \n"},
            {"text": ""},
            {"text": " A mill ( or two ) , built in 1 @,@ 874 . \n"},
        ],
        " = Old Mill =\n A mill (or two), built in 1,874.\n",
    ),
    (
        "lm1b",
        "news.en.heldout-00000-of-00050",
        'It costs $ 5 , " he said .\nIs that so ?\n',
        [{"text": 'It costs $ 5 , " he said .'}, {"text": "Is that so ?"}],
        'It costs $5, " he said.Is that so?',
    ),
    (
        "lambada",
        "lambada_test.jsonl",
        '{"text": "“ Go , ” she said ."}\n{"text": "He went ."}\n',
        [{"text": "“ Go , ” she said ."}, {"text": "He went ."}],
        '\n" Go , " she said .\nHe went .',
    ),
    (
        "ag_news",
        "ag_news.test.csv",
        '"3","Oil , again","It rose ."\n"1","A vote","They voted ."\n',
        [{"text": "Oil , again It rose ."}, {"text": "A vote They voted ."}],
        "Oil , again It rose .A vote They voted .",
    ),
    (
        "pubmed",
        "pubmed-dataset/val.txt",
        '{"article_text": ["the liver ( ald ) .", "why ?"]}\n{"article_text": ["no , 3 @-@ fold ."]}\n',
        [{"article": "the liver ( ald ) .\nwhy ?"}, {"article": "no , 3 @-@ fold ."}],
        "the liver (ald) .\nwhy?no, 3-fold .",
    ),
    (
        "arxiv",
        "scientific_papers_arxiv.valid.jsonl",
        '{"article_text": ["we show that .", "it is ."]}{"article_text": ["see [ 1 ] ; it is ."]}',
        [{"article": "we show that .\nit is ."}, {"article": "see [ 1 ] ; it is ."}],
        "we show that .\nit is.see [1]; it is.",
    ),
    (
        "pubmed-abstracts",
        "pubmed-abstracts.1000.txt",
        "Cells die .\nCells live .\n",
        None,
        "Cells die .Cells live .",
    ),
    (
        "openwebtext",
        "openwebtext.first-1000.jsonl",
        '{"text": "One page ."}\n{"text": "Another\\n"}\n',
        [{"text": "One page ."}, {"text": "Another\n"}],
        f"One page .{EOS}Another\n{EOS}",
    ),
    (
        "c4",
        "c4.sample-1000.jsonl",
        '{"text": "One page ."}\n{"text": "Another ."}\n',
        [{"text": "One page ."}, {"text": "Another ."}],
        f"One page .{EOS}Another .{EOS}",
    ),
]


def rows_of(name: str, corpus: Corpus, tokenizer: Tokenizer, length: int) -> Rows:
    wanted = zero_shot_set(name)
    config = DataConfig(length=length, packing=wanted.packing, detokenizer=wanted.detokenizer)
    return rows_from(corpus, tokenizer, config)


def cut(stream: str, length: int) -> list[list[int]]:
    """Rows of BOS, length - 2 bytes of the stream, and EOS. The rest of the stream is dropped."""
    v = BYTES.vocabulary
    tokens = [v.eos_id if sign == EOS else ord(sign) for sign in stream]
    body = length - 2
    whole = len(tokens) // body * body
    return [[v.bos_id, *tokens[i : i + body], v.eos_id] for i in range(0, whole, body)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))


def test_every_set_is_worked_by_hand():
    assert [name for name, *_ in BY_HAND] == [*SETS, *MORE_SETS]
    assert list(SETS) == ["ptb", "wikitext", "lm1b", "lambada", "ag_news", "pubmed", "arxiv"]


@pytest.mark.parametrize(("name", "file", "content", "records", "stream"), BY_HAND)
def test_from_a_folder(tmp_path, name, file, content, records, stream):
    path = tmp_path / "sets" / f"{file}.xz"
    path.parent.mkdir(parents=True)
    path.write_bytes(lzma.compress(content.encode()))
    corpus, _ = find(zero_shot_set(name), tmp_path / "sets")
    rows = rows_of(name, corpus, BYTES, 10)
    assert rows[range(len(rows))][0].tolist() == cut(stream, 10)
    assert rows.characters == len(stream[: len(stream) // 8 * 8].replace(EOS, ""))


@pytest.mark.parametrize(
    ("name", "file", "content", "records", "stream"), [row for row in BY_HAND if row[3]]
)
def test_from_the_hub(put_datasets, name, file, content, records, stream):
    def load_dataset(path, config=None, *, split, data_dir=None, revision=None):
        hub = zero_shot_set(name).hub
        assert (path, split) == (hub.repository, hub.split)
        # a dataset with a loading script is read from its Parquet copy, in a folder of the
        # configuration
        asked = (None, hub.config) if hub.converted else (hub.config or None, None)
        assert (config, data_dir) == asked
        assert revision == ("refs/convert/parquet" if hub.converted else None)
        return HubDataset([{**record, "other": 1} for record in records])

    put_datasets(load_dataset)
    corpus, note = find(zero_shot_set(name), None)
    rows = rows_of(name, corpus, BYTES, 10)
    assert rows[range(len(rows))][0].tolist() == cut(stream, 10)
    assert note == ""


def test_a_program_on_the_hub_is_not_run_but_reported(put_datasets):
    def load_dataset(*where, **options):
        raise RuntimeError("Dataset scripts are no longer supported, but found x.py")

    put_datasets(load_dataset)
    corpus, _ = find(SETS["arxiv"], None)
    with pytest.raises(
        UnmaskError, match="arxiv:validation cannot be loaded: Dataset scripts are no"
    ):
        list(corpus)


def test_the_whole_set_is_preferred_and_a_part_is_named_so(tmp_path):
    (tmp_path / "scientific_papers_arxiv.sample.jsonl").write_text('{"article_text": ["part"]}')
    (tmp_path / "wikitext103.valid.tokens").write_text(" <unk> \n")
    assert find(SETS["arxiv"], tmp_path)[1] == "a sample, from validation and test"
    assert find(SETS["wikitext"], tmp_path)[1].startswith("rare words are <unk>")
    (tmp_path / "arxiv-dataset").mkdir()
    (tmp_path / "arxiv-dataset" / "val.txt").write_text('{"article_text": ["whole"]}')
    corpus, note = find(SETS["arxiv"], tmp_path)
    assert (list(corpus), note) == (["whole"], "")


def test_the_error_of_an_unavailable_set_names_its_source(tmp_path):
    with pytest.raises(
        UnmaskError, match=r"^no lm1b.test.txt or other file of the set in .*; leave the folder out"
    ):
        find(SETS["lm1b"], tmp_path)
    with pytest.raises(
        UnmaskError, match=r"^the set is not on the hub: give a folder that holds pubmed-abs"
    ):
        find(MORE_SETS["pubmed-abstracts"], None)
    with pytest.raises(UnmaskError, match=r"^unknown zero-shot set 'pdb'; did you mean 'ptb'\?$"):
        zero_shot_set("pdb")


def test_the_table_names_detokenizers_that_exist_and_says_how_text_is_prepared():
    for wanted in (*SETS.values(), *MORE_SETS.values()):
        assert not wanted.detokenizer or wanted.detokenizer in DETOKENIZERS
    assert SETS["ptb"].preprocessing == "validation, detokenizer ptb, no EOS between lines"
    assert MORE_SETS["c4"].preprocessing == "validation, as it is, EOS between documents"


def test_coverage_by_hand(tmp_path):
    corpus = Corpus("x", lambda: iter(["a 's b", " ", "c did n't", "d"]), str)
    # detokenized: a's b | c didn't | d, of 5, 8 and 1 characters and 3, 3 and 1 words
    assert coverage(corpus, "ptb", 14) == (3, 7)
    assert coverage(corpus, "ptb", 13) == (2, 6)
    assert coverage(corpus, "ptb", 9) == (2, 3 + 3 * 4 / 8)
    assert coverage(corpus, "", 6) == (1, 3)


# GPT-2


@pytest.fixture(scope="session")
def gpt2_part() -> SubwordTokenizer:
    part = json.loads(FIXTURE.read_text(encoding="utf-8"))
    merges = [tuple(merge.split(" ")) for merge in part["merges"]]
    backend = byte_level(models.BPE(vocab=part["vocab"], merges=merges))
    return SubwordTokenizer(backend, Vocabulary(50258, mask_id=50257, bos_id=50256, eos_id=50256))


PTB_LINES = [
    " mr. <unk> said the company 's profit rose N N to $ N million in N \n",
    " he did n't say why the traders ' orders fell \n",
    " revenue was # N billion and\\/or less \n",
]
PTB_IDS = [
    [43395, 13, 5633, 531, 262, 1664, 338, 7630, 8278, 352, 352, 284, 720, 16, 1510, 287, 399],
    [258, 1422, 470, 910, 1521, 262, 21703, 6, 6266, 3214],
    [260, 4080, 373, 1303, 16, 2997, 290, 14, 273, 1342],
]
WIKITEXT_LINES = [
    " \n",
    " = Old Mill = \n",
    "\n",
    " The mill ( built in 1874 ) is a three @-@ storey building , and cost £ 1 @,@ 200 ;"
    " it stands 2 @.@ 5 km from the town . \n",
    " = = History = = \n",
    ' It was " restored " in 1990 , the owner \'s son said . \n',
]
WIKITEXT_IDS = [
    [796, 5706, 9212, 796, 198],
    [
        *(383, 3939, 357, 18780, 287, 1248, 4524, 8, 318, 257, 1115, 12, 8095, 88, 2615, 11, 290),
        *(1575, 4248, 352, 11, 2167, 26, 340, 6296, 362, 13, 20, 10571, 422, 262, 3240, 13, 198),
    ],
    [6624, 7443, 6624, 198],
    [632, 373, 366, 2118, 1850, 1, 287, 6303, 11, 262, 4870, 338, 3367, 531, 13, 198],
]


@pytest.mark.parametrize(
    ("name", "file", "lines", "ids"),
    [
        ("ptb", "ptb.valid.txt", PTB_LINES, PTB_IDS),
        ("wikitext", "wiki.valid.raw", WIKITEXT_LINES, WIKITEXT_IDS),
    ],
)
def test_the_ids_and_counts_of_lines_under_gpt2(tmp_path, gpt2_part, name, file, lines, ids):
    (tmp_path / file).write_text("".join(lines), encoding="utf-8")
    corpus, _ = find(SETS[name], tmp_path)
    detokenize = DETOKENIZERS.build(name)
    assert [gpt2_part.encode(detokenize(line)) for line in corpus] == ids
    stream = list(chain.from_iterable(ids))
    rows = rows_of(name, corpus, gpt2_part, 10)
    found = rows[range(len(rows))][0]
    assert found[:, 1:-1].flatten().tolist() == stream[: len(stream) // 8 * 8]
    assert set(found[:, [0, -1]].flatten().tolist()) == {50256}


DATA = os.environ.get("UNMASK_DATA")
real_data = pytest.mark.skipif(not DATA, reason="UNMASK_DATA names no folder")

# documents (lines with text), words of the original, characters and GPT-2 tokens of the detokenized
# text. The authors' functions, run on the same files, give the same counts of tokens.
COUNTS = {
    "ptb": (3370, 70_390, 373_913, 78_403),
    "wikitext": (2461, 213_886, 1_098_534, 235_547),  # of the copy with <unk>
    "lambada": (5153, 306_006, 1_669_012, 423_590),
    "ag_news": (7600, 286_690, 1_788_274, 392_508),
}
# Counts of words and line ends, as published: 73k for PTB, 217,646 for WikiText (Merity et al.,
# 2016).
PUBLISHED = {"ptb": 73_760, "wikitext": 217_646}


@pytest.fixture(scope="session")
def gpt2() -> Tokenizer:
    return load_tokenizer(Path(DATA) / "tokenizers" / "gpt2")


@real_data
@pytest.mark.parametrize("name", COUNTS)
def test_the_counts_of_the_real_sets_under_gpt2(gpt2, name):
    corpus, _ = find(SETS[name], Path(DATA) / "zero-shot")
    detokenizer = SETS[name].detokenizer
    originals = list(corpus)
    texts = [DETOKENIZERS.build(detokenizer)(text) if detokenizer else text for text in originals]
    characters = sum(map(len, texts))
    tokens = sum(map(len, gpt2.encode_batch(texts)))
    assert (*coverage(corpus, detokenizer, characters), characters, tokens) == COUNTS[name]
    rows = rows_of(name, corpus, gpt2, 1024)
    assert len(rows) == tokens // 1022


@real_data
@pytest.mark.parametrize(
    ("name", "file"), [("ptb", "ptb.valid.txt.xz"), ("wikitext", "wikitext103.valid.tokens.xz")]
)
def test_the_real_files_are_the_published_ones(name, file):
    lines = list(file_corpus([Path(DATA) / "zero-shot" / file], Lines(whole=True)).read())
    assert sum(len(line.split()) for line in lines) + len(lines) == PUBLISHED[name]


@real_data
def test_the_part_of_gpt2_is_gpt2(gpt2, gpt2_part):
    lines = [DETOKENIZERS.build("ptb")(line.strip()) for line in PTB_LINES]
    lines += map(DETOKENIZERS.build("wikitext"), WIKITEXT_LINES)
    assert list(map(gpt2.encode, lines)) == list(map(gpt2_part.encode, lines))
    whole = json.loads((Path(DATA) / "tokenizers" / "gpt2" / "vocab.json").read_text("utf-8"))
    part = json.loads(FIXTURE.read_text(encoding="utf-8"))["vocab"]
    assert part.items() <= whole.items()
