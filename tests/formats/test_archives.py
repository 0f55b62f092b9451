"""Archives that two readers would read differently:
the checked content is the content that torch loads.
"""

import re
import shutil
import zipfile

import torch
from hub_models import FIXTURE, refused

import unmask
from unmask.formats.pickle import read_pickle


def test_the_checked_content_is_the_content_that_torch_reads(tmp_path):
    file = tmp_path / "a.pt"
    torch.save({"a": torch.zeros(2)}, file)
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    weights = content.pop("a/data.pkl")
    hostile = b"\x80\x02cbuiltins\nbytearray\n(J\x00\x00\x00\x10tR."  # 256 MiB
    for name, where in {"a/DATA.PKL": "a/x/data.pkl", "a/Data.pkl": "b/data.pkl"}.items():
        with zipfile.ZipFile(file, "w") as archive:
            for entry, data in {name: hostile, **content, where: weights}.items():
                archive.writestr(entry, data)
        assert "holds 2 files data.pkl" in refused(lambda: read_pickle(file))
    with zipfile.ZipFile(file, "w") as archive:
        for entry, data in {"a/DATA.PKL": hostile, **content}.items():
            archive.writestr(entry, data)
    assert "names builtins.bytearray" in refused(lambda: read_pickle(file))


# newer versions of Python detect by themselves that an archive has data after its end
ANOTHER = re.compile("another end than|no checkpoint of torch.save")


def test_an_archive_with_another_directory_is_refused(tmp_path):
    file = tmp_path / "a.pt"
    torch.save({"a": torch.zeros(2)}, file)
    large = file.read_bytes()  # as torch ends it
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w") as archive:
        for entry, data in content.items():
            archive.writestr(entry, data)
    small = file.read_bytes()
    for whole in (large, small):
        file.write_bytes(whole)
        assert read_pickle(file)["a"].tolist() == [0, 0]
        # of two archives Python reads the second and torch the first; a comment hides a second end
        for changed in (whole + whole, whole[:-2] + b"\1\0x"):
            file.write_bytes(changed)
            assert ANOTHER.search(refused(lambda: read_pickle(file)))
    at = large.rindex(b"PK\6\7") + 8
    there = int.from_bytes(large[at : at + 8], "little") - 1
    file.write_bytes(large[:at] + there.to_bytes(8, "little") + large[at + 8 :])
    assert ANOTHER.search(refused(lambda: read_pickle(file)))


def test_data_that_several_tensors_claim_count_once(tmp_path):
    file = tmp_path / "pytorch_model.bin"
    torch.save({f"backbone.{i}": torch.zeros(2**16) for i in range(20)}, file)
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in content.items():  # each overlaps the next ones
            last = name.endswith("/data/19") or "/data/" not in name
            archive.writestr(name, data if last else data[:64])
    shutil.copy(FIXTURE / "config.json", tmp_path)
    assert file.stat().st_size < 2**19
    assert "claim more data than it holds" in refused(lambda: unmask.load(tmp_path))
