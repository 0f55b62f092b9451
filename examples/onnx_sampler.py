"""Masked diffusion without torch: an ONNX network, numpy and a tokenizer write a text.

    unmask export MODEL out.model --pretrained --onnx model.onnx
    python examples/onnx_sampler.py model.onnx out.model/tokenizer.json "The" --length 32

Ancestral sampling in the paper's letters: in the step from t to s each MASK is revealed with
probability (alpha_s - alpha_t) / (1 - alpha_t), which for a log-linear schedule is (t - s) / t.
"""

import argparse

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

EPS = 1e-3  # how much a log-linear schedule leaves unmasked at t = 1


def sample(session, z_t: np.ndarray, mask_id: int, steps: int, never, rng) -> np.ndarray:
    """Reveals every MASK of one row in at most `steps` looks at the network."""
    reads_sigma = "sigma" in [given.name for given in session.get_inputs()]
    for step in range(steps, 0, -1):
        t, s = step / steps, (step - 1) / steps
        places = np.flatnonzero((z_t == mask_id) & (rng.random(len(z_t)) < (t - s) / t))
        if not len(places):
            continue
        feed = {"tokens": z_t[None]}
        if reads_sigma:
            feed["sigma"] = np.array([-np.log1p(-(1 - EPS) * t)], dtype=np.float32)
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
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    session = onnxruntime.InferenceSession(args.network)
    ids = {k: int(v) for k, v in session.get_modelmeta().custom_metadata_map.items() if "_id" in k}
    tokenizer = Tokenizer.from_file(args.tokenizer)
    given = [ids["bos_id"], *tokenizer.encode(args.prompt, add_special_tokens=False).ids]
    z_t = np.array(given + [ids["mask_id"]] * (args.length - len(given)), dtype=np.int64)
    never = [ids[name] for name in ("bos_id", "pad_id", "eos_id") if name in ids]
    rng = np.random.default_rng(args.seed)
    print(tokenizer.decode(sample(session, z_t, ids["mask_id"], args.steps, never, rng).tolist()))


if __name__ == "__main__":
    main()
