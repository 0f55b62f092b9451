"""Folders are written completely or not at all, and damage is detected."""

import errno

import pytest
import torch

from unmask.errors import UnmaskError
from unmask.files.storage import Damaged, atomic_folder, full_disk, recover, verify, write_json
from unmask.files.tensors import load_weights, read_weights, write_weights


def write(folder, value=1.0):
    shared = torch.full((4,), value)
    with atomic_folder(folder) as building:
        write_weights(building, {"a": shared, "tied": shared, "view": shared[:2]})
        (building / "inner").mkdir()
        write_json(building / "inner" / "notes.json", {"value": value})


def test_written_tensors_are_read_back_also_with_shared_memory(tmp_path):
    write(tmp_path / "out")
    verify(tmp_path / "out")
    tensors = read_weights(tmp_path / "out")
    assert torch.equal(tensors["a"], tensors["tied"])
    assert torch.equal(tensors["view"], torch.ones(2))


def test_an_error_inside_leaves_the_old_folder_and_nothing_else(tmp_path):
    write(tmp_path / "out", 1.0)
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "out") as building:
        write_weights(building, {"a": torch.zeros(1)})
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read_weights(tmp_path / "out")["a"][0] == 1


def test_a_folder_is_replaced(tmp_path):
    write(tmp_path / "out", 1.0)
    write(tmp_path / "out", 2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read_weights(tmp_path / "out")["a"][0] == 2


def test_recover_puts_back_what_a_kill_left_between_two_renames(tmp_path):
    write(tmp_path / "out", 1.0)
    (tmp_path / "out").rename(tmp_path / ".out.replaced")
    (tmp_path / ".out.building").mkdir()
    recover(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    verify(tmp_path / "out")


@pytest.mark.parametrize("name", ["model.safetensors", "inner/notes.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "delete"])
def test_every_damage_to_every_file_is_noticed(tmp_path, name, damage):
    write(tmp_path / "out")
    path = tmp_path / "out" / name
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    with pytest.raises(Damaged, match="damaged"):
        verify(tmp_path / "out")


def test_weights_that_do_not_fit_are_named():
    model = torch.nn.Linear(2, 3)
    found = {"weight": torch.zeros(3, 3), "extra": torch.zeros(1)}
    with pytest.raises(UnmaskError) as caught:
        load_weights(model, found, "file")
    message = str(caught.value)
    assert "bias is missing" in message
    assert "extra is not expected" in message
    assert "weight is float32[3, 3] instead of float32[3, 2]" in message
    with pytest.raises(UnmaskError, match="float64"):
        load_weights(model, {k: v.double() for k, v in model.state_dict().items()}, "file")


def test_only_a_full_disk_is_reported_as_full():
    with (
        pytest.raises(UnmaskError, match="disk full: so it stands"),
        full_disk(lambda: "so it stands"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), full_disk(lambda: ""):
        raise PermissionError
