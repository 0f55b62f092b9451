"""A checkpoint format: one NumPy archive with the weights, the configuration and the tokenizer."""

import json
from pathlib import Path

import numpy as np
import torch

from unmask.bundle import Bundle
from unmask.config.run_config import from_dict, to_dict
from unmask.data.tokenizers.kinds import parse_tokenizer
from unmask.files.storage import atomic_folder
from unmask.files.untrusted import refusing
from unmask.formats.format import FORMATS, Format
from unmask.formats.weights import restored

FILE = "model.npz"


@FORMATS.register("npz")
class NumpyFormat(Format):
    """One file, model.npz, with arrays of weights, and JSON for all else. It holds no pickles."""

    @classmethod
    def matches(cls, path: Path) -> bool:
        return (path / FILE).is_file()

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        about = {"config": to_dict(bundle.config), "defaults": dict(bundle.defaults)}
        about["tokenizer"] = bundle.tokenizer.files()
        weights = {name: tensor.numpy() for name, tensor in bundle.method.state_dict().items()}
        with atomic_folder(folder) as new:
            np.savez(new / FILE, about=np.array(json.dumps(about)), **weights)

    @classmethod
    def read(cls, path: Path) -> Bundle:
        with refusing(f"{path / FILE} is damaged"), np.load(path / FILE) as file:
            arrays = dict(file)
            about = json.loads(str(arrays.pop("about")))
            config, tokenizer = from_dict(about["config"]), parse_tokenizer(about["tokenizer"])
            weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
            method = restored(config, tokenizer.vocabulary, weights, path / FILE)
            return Bundle(method, tokenizer, config, about["defaults"])
