#!/usr/bin/env python3
"""Writes tests/golden/hugging_face/NAME: small random models in Hugging Face's layout, saved by `transformers`, and
what it computes with them.

    VENV/bin/python tests/golden/make_hugging_face.py [NAME...]

VENV has `torch` and `transformers` from pip. Each folder has what save_pretrained() writes, and expected.safetensors:

    ids, targets   I32 [B, T]
    logits         F32 [B, T, V]
    loss           F32 [1]        the mean over all targets
    grads.NAME     F32            of the loss, with the names and shapes of the file of weights
"""

import pathlib
import shutil
import sys
import tempfile

import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hugging_face_recipes as recipes  # noqa: E402

# The others are only compared by scripts/peer_hf.py.
GOLDENS = [name for name in recipes.configs(recipes.TINY) if name not in ("gpt2_untied", "qwen3_moe_raw", "gemma")]
OUT = pathlib.Path(__file__).resolve().parent / "hugging_face"


def stored_gradients(model):
    """The gradients under the names, and in the shapes, in which save_pretrained() stores the weights."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return safetensors.torch.load_file(pathlib.Path(folder) / "model.safetensors")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in sys.argv[1:] or GOLDENS:
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        model = recipes.model_of(name, recipes.TINY)
        model.save_pretrained(folder)
        for extra in folder.iterdir():
            if extra.name not in ("config.json", "model.safetensors", "generation_config.json"):
                extra.unlink()
        ids, targets = recipes.batch(recipes.TINY)
        logits = model(input_ids=ids, use_cache=False).logits
        loss = recipes.loss_of(logits, targets)
        loss.backward()
        expected = {
            "ids": ids.to(torch.int32),
            "targets": targets.to(torch.int32),
            "logits": logits.detach().contiguous(),
            "loss": loss.detach().reshape(1),
        }
        for key, gradient in stored_gradients(model).items():
            expected["grads." + key] = gradient
        safetensors.torch.save_file(expected, folder / "expected.safetensors")
        print(name, f"loss {loss.item():.6f}, {sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
