"""Masked diffusion without torch: an ONNX network, numpy and a tokenizer write a text.

    unmask export MODEL out.model --pretrained --onnx model.onnx
    python examples/onnx_sampler.py model.onnx out.model/tokenizer.json "The" --length 32

Ancestral sampling in the paper's letters: in the step from t to s each MASK is revealed with
probability (alpha_s - alpha_t) / (1 - alpha_t). The file itself says what alpha is.
"""

import argparse
import json
from itertools import pairwise

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def sample(session, z_t: np.ndarray, known: dict, steps: int, rng) -> np.ndarray:
    """Reveals every MASK of one row in at most `steps` looks at the network."""
    alphas, mask_id = json.loads(known["alpha"]), int(known["mask_id"])
    never = json.loads(known["never_ids"])  # of special tokens and classes
    grid = np.interp(np.linspace(0, 1, steps + 1), np.linspace(0, 1, len(alphas)), alphas)
    grid[0] = 1  # at the end nothing stays masked
    for alpha_s, alpha_t in reversed([*pairwise(grid)]):
        revealed = rng.random(len(z_t)) < (alpha_s - alpha_t) / (1 - alpha_t)
        if not len(places := np.flatnonzero((z_t == mask_id) & revealed)):
            continue
        feed = {"tokens": z_t[None]}
        if "sigma" in [given.name for given in session.get_inputs()]:
            sigma = -np.log(max(alpha_t, np.exp(-float(known["largest_sigma"]))))
            feed["sigma"] = np.float32([sigma])
        logits = session.run(["logits"], feed)[0][0, places].astype(np.float64)
        logits[:, never] = -np.inf
        # the largest of log x_theta with Gumbel noise is a draw from x_theta; MASK has log 0 already
        z_t[places] = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    return z_t


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a text with an exported network.")
    parser.add_argument("network")
    parser.add_argument("tokenizer")
    parser.add_argument("prompt", nargs="?", default="")
    for name, default in {"length": 32, "steps": 32, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    session = onnxruntime.InferenceSession(args.network)
    known = session.get_modelmeta().custom_metadata_map
    if known["order"] != "any":
        parser.error("this network writes from left to right, and is no diffusion")
    tokenizer, rng = Tokenizer.from_file(args.tokenizer), np.random.default_rng(args.seed)
    given = [int(known["bos_id"])] if "bos_id" in known else []
    given += tokenizer.encode(args.prompt, add_special_tokens=False).ids
    z_t = np.array(given + [int(known["mask_id"])] * (args.length - len(given)), dtype=np.int64)
    print(tokenizer.decode(sample(session, z_t, known, args.steps, rng).tolist()))


if __name__ == "__main__":
    main()
