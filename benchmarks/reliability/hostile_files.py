"""Hostile files for `fuzz.py`: valid files with changed bytes or changed trees, and random files."""

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from hypothesis import strategies as st

# the C loader is ten times faster, where it is installed
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Files = dict[str, bytes]
Draw = Callable[..., Any]

# values that break readers: large and odd numbers, deep nests, other types, paths out of the folder
ODD_BYTES = [
    *(b"[" * 5000, b'{"a":' * 5000, b"&a [*a, *a]", b"{a: &x [1], b: [*x, *x]}"),
    *(b"1e400", b"-1", b"NaN", b"9" * 5000, b"4294967296", b"1e30", b"0x10", b"0"),
    *(b"null", b"[]", b"{}", b'""', b"\xff\xfe", b"\x00", b"'", b'"', b"!!python/name:os.system"),
    *(b"../../etc/passwd", b"/dev/zero", b"a" * 5000, b"\x1b[2J\nsecond line", b"\r\n", b","),
]
ODD_VALUES: list[Any] = [
    *(0, -1, 1, 2, 7, 2**31, 2**32, 2**63, 10**12, 10**30, 0.5, 1e-300, 1e300),
    *(float("nan"), float("inf"), True, None, "", "x", "a" * 3000, "\x1b[2J\nx", "\ud800", "1e9"),
    *("../../etc/passwd", "/dev/zero", "(a+)+$", "mdlm", "bytes", "subwords", "F64", "U8"),
    *([], {}, [[]], [0, 10**9], [1, 2, 3], {"name": "x"}, {"text": "a", "weight": -1}),
]
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "size", "kind", "model", "vocab", "config", "data", "train"])
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PACKERS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, gzip.compress),
    ".xz": (lzma.decompress, lzma.compress),
    ".bz2": (bz2.decompress, bz2.compress),
}


class Seeds(list[Files]):
    """Valid sets of files with a short repr, because hypothesis prints the list that it draws from."""

    def __repr__(self) -> str:
        return f"{len(self)} seeds"


@st.composite
def hostile(draw: Draw, seeds: Seeds) -> Files:
    """A valid set of files in which one file is changed, or replaced by random bytes or a random tree."""
    files = dict(draw(st.sampled_from(seeds)))
    name = draw(st.sampled_from(sorted(files)))
    kind = draw(st.sampled_from(["nothing", *["bytes"] * 3, *["inside"] * 5]))
    if kind == "nothing":
        files[name] = draw(st.binary() | TREES.map(lambda tree: json.dumps(tree).encode()))
    else:
        files[name] = (changed_bytes if kind == "bytes" else changed_inside)(
            name, files[name], draw
        )
    # an attacker who changes a file can write the manifest too
    above = [parent / "manifest.json" for parent in PurePosixPath(name).parents]
    manifest = next((path for path in above if str(path) in files), None)
    if manifest and name != str(manifest) and draw(st.integers(0, 9)):
        files[str(manifest)] = _sealing(files, manifest)
    return files


def _sealing(files: Files, manifest: PurePosixPath) -> bytes:
    """A manifest of the files that the old one lists, with their present hashes."""
    listed = {each: manifest.parent / each for each in json.loads(files[str(manifest)])}
    digests = {
        each: hashlib.sha256(files[str(path)]).hexdigest()
        for each, path in listed.items()
        if str(path) in files
    }
    return json.dumps(digests).encode()


def changed_inside(name: str, content: bytes, draw: Draw) -> bytes:
    """A file of the same format with another tree, another header or other compressed text."""
    suffix = Path(name).suffix
    if suffix in PACKERS:
        unpack, pack = PACKERS[suffix]
        return pack(changed_inside(Path(name).stem, unpack(content), draw))
    if suffix == ".safetensors":
        return changed_tensors(content, draw)
    if suffix == ".json":
        return json.dumps(changed_tree(json.loads(content), draw)).encode()
    if suffix == ".yaml":
        tree = changed_tree(yaml.load(content, YAML_LOADER), draw)
        return json.dumps(tree, indent=1).encode()  # JSON is YAML
    if suffix == ".jsonl":
        lines = content.splitlines(keepends=True)
        at = draw(st.integers(0, len(lines) - 1))
        lines[at] = json.dumps(changed_tree(json.loads(lines[at]), draw)).encode() + b"\n"
        return b"".join(lines)
    return changed_bytes(name, content, draw)


def changed_tensors(content: bytes, draw: Draw) -> bytes:
    """Safetensors with another header of the right length, or with other numbers."""
    size = int.from_bytes(content[:8], "little")
    header, payload = content[8 : 8 + size], content[8 + size :]
    if draw(st.integers(0, 3)) == 0:
        at = 4 * draw(st.integers(0, len(payload) // 4 - 1))
        odd = draw(st.sampled_from([b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f"]))
        return content[: 8 + size] + payload[:at] + odd + payload[at + 4 :]
    tree = changed_tree(json.loads(header), draw)
    header = json.dumps(tree).encode()
    return len(header).to_bytes(8, "little") + header + payload


def changed_tree(tree: Any, draw: Draw) -> Any:
    """A tree in which one to three values are replaced by odd ones, deleted, moved or renamed."""
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree)) if isinstance(tree, dict | list) else []
        if not places:
            return deepcopy(draw(st.sampled_from(ODD_VALUES)))
        parent, key = places[draw(st.integers(0, len(places) - 1))]
        kind = draw(
            st.sampled_from(["odd", "odd", "odd", "made", "gone", "other", "renamed", "deep"])
        )
        if kind == "gone":
            del parent[key]
        elif kind == "renamed" and isinstance(parent, dict):
            parent[str(draw(st.sampled_from(ODD_VALUES)))[:50]] = parent.pop(key)
        elif kind == "other":
            other, at = places[draw(st.integers(0, len(places) - 1))]
            parent[key] = json.loads(json.dumps(other[at]))
        elif kind == "deep":
            for _ in range(draw(st.sampled_from([1, 3, 60]))):
                parent[key] = [parent[key]]
        else:
            parent[key] = deepcopy(draw(st.sampled_from(ODD_VALUES) if kind == "odd" else TREES))
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """The container and the key of every value of a tree. A long container has only its first and its last ten."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    for key in keys if len(keys) < 40 else [*keys[:10], *keys[-10:]]:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def changed_bytes(_: str, content: bytes, draw: Draw) -> bytes:
    """A file with some bytes flipped, cut, doubled, inserted or replaced by odd ones."""
    odd = st.sampled_from(ODD_BYTES) | st.binary(max_size=16)
    for _round in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        to = min(len(content), at + draw(st.sampled_from([1, 2, 8, 64, 10**9])))
        kind = draw(st.sampled_from(["flip", "cut", "double", "insert", "replace", "number"]))
        if kind == "flip" and at < len(content):
            flipped = content[at] ^ (1 << draw(st.integers(0, 7)))
            content = content[:at] + bytes([flipped]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at] + content[to:]
        elif kind == "double":
            content = content[:to] + content[at:to] + content[to:]
        elif kind == "number":
            content = _other_number(content, at, draw(odd))
        else:
            content = content[:at] + draw(odd) + content[at if kind == "insert" else to :]
    return content


def _other_number(content: bytes, at: int, odd: bytes) -> bytes:
    """Replaces the first number after a position."""
    first = next((i for i in range(at, len(content)) if content[i : i + 1].isdigit()), None)
    if first is None:
        return content
    last = next((i for i in range(first, len(content)) if not content[i : i + 1].isdigit()), first)
    return content[:first] + odd + content[last:]
