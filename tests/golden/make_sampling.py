#!/usr/bin/env python3
"""Make sampling.safetensors: what logits processors of transformers leave of logits, in float64.

    python3 tests/golden/make_sampling.py

Each case has CASE.logits [N, V] f32, CASE.prompt [P] and CASE.generated [G] i32, CASE.options [7] (repetition, frequency
and presence penalty, temperature, top_k, top_p, min_p) and CASE.probabilities [N, V] f64. The frequency and presence
penalties, which transformers does not have, are written out here as the OpenAI reference and vLLM define them. Needs
PyTorch, numpy and transformers.
"""

import pathlib

import numpy as np
import torch
import transformers
from transformers.generation import logits_process as lp

from make_goldens import write_safetensors

V, ROWS = 37, 4
#         repetition, frequency, presence, temperature, top_k, top_p, min_p
CASES = {
    "plain": (1.0, 0.0, 0.0, 1.0, 0, 1.0, 0.0),
    "temperature": (1.0, 0.0, 0.0, 0.7, 0, 1.0, 0.0),
    "top_k": (1.0, 0.0, 0.0, 1.3, 5, 1.0, 0.0),
    "top_p": (1.0, 0.0, 0.0, 1.0, 0, 0.8, 0.0),
    "min_p": (1.0, 0.0, 0.0, 1.5, 0, 1.0, 0.1),
    "repetition": (1.3, 0.0, 0.0, 1.0, 0, 1.0, 0.0),
    "repetition_below_1": (0.8, 0.0, 0.0, 1.0, 0, 1.0, 0.0),
    "frequency": (1.0, 0.4, 0.0, 1.0, 0, 1.0, 0.0),
    "presence": (1.0, 0.0, -0.6, 1.0, 0, 1.0, 0.0),
    "all": (1.2, 0.3, 0.5, 0.9, 20, 0.9, 0.05),
}


def probabilities(scores, prompt, generated, options):
    repetition, frequency, presence, temperature, top_k, top_p, min_p = options
    history = torch.tensor([prompt + generated] * len(scores))
    if repetition != 1.0:
        scores = lp.RepetitionPenaltyLogitsProcessor(repetition)(history, scores)
    counts = torch.bincount(torch.tensor(generated), minlength=V).double()
    scores = scores - frequency * counts - presence * (counts > 0).double()
    warpers = [lp.TemperatureLogitsWarper(temperature)] if temperature != 1.0 else []
    warpers += [lp.TopKLogitsWarper(top_k)] if top_k else []
    warpers += [lp.TopPLogitsWarper(top_p)] if top_p < 1 else []
    warpers += [lp.MinPLogitsWarper(min_p)] if min_p else []
    for warper in warpers:
        scores = warper(history, scores)
    return torch.softmax(scores, -1)


def main():
    generator = torch.Generator().manual_seed(11)
    tensors = {}
    for name, options in CASES.items():
        logits = 3 * torch.randn(ROWS, V, generator=generator)
        prompt = torch.randint(V, (6,), generator=generator).tolist()
        generated = torch.randint(V // 2, (12,), generator=generator).tolist()
        tensors[f"{name}.logits"] = logits.numpy()
        tensors[f"{name}.prompt"] = np.array(prompt, dtype=np.int32)
        tensors[f"{name}.generated"] = np.array(generated, dtype=np.int32)
        tensors[f"{name}.options"] = np.array(options, dtype=np.float64)
        tensors[f"{name}.probabilities"] = probabilities(logits.double(), prompt, generated, options).numpy()
    path = pathlib.Path(__file__).with_name("sampling.safetensors")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    write_safetensors(path, tensors, versions)
    print(f"{path.name}: {path.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
