#!/usr/bin/env python3
"""Make the folder trl: a small Llama, adapters of PEFT for it, and dialogues, with the loss and the gradients of TRL.

    pip install torch transformers peft trl
    python3 tests/golden/make_trl.py

expected.safetensors has, for training of all weights and of the adapters, `weights.loss` and `adapters.loss` [1], and
each gradient under the name that its tensor has in its file:
`adapters.grads.base_model.model.model.layers.0.mlp.up_proj.lora_A.weight`.
"""

import pathlib
import shutil
import tempfile

import peft
import safetensors.torch
import torch
import transformers
import trl

import trl_recipes as recipes

CONTEXT, COUNT = 48, 9


def main():
    torch.set_num_threads(1)
    folder = pathlib.Path(__file__).with_name("trl")
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer, made = recipes.tokenizer_of(24), recipes.dialogues(COUNT)
    expected = {}
    with tempfile.TemporaryDirectory() as place:
        for what in ("weights", "adapters"):
            model = recipes.model_of("llama", len(tokenizer), width=8, context=CONTEXT)
            if what == "adapters":
                model = recipes.with_adapters(model, rank=2)
                model.save_pretrained(folder / "adapter")
            else:
                model.save_pretrained(folder)
            loss, targets, gradients = recipes.computed(model, tokenizer, recipes.dataset_of(made), CONTEXT, place,
                                                        packing=True)
            expected |= {f"{what}.loss": torch.tensor([loss]), f"{what}.targets": torch.tensor([targets]).int()}
            expected |= {f"{what}.grads.{name.replace('.default', '')}": value for name, value in gradients.items()}
        tokenizer.save_pretrained(place)
        shutil.copy(pathlib.Path(place) / "tokenizer.json", folder)
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    (folder / "template.jinja").write_text(recipes.TEMPLATE)
    recipes.write_dialogues(folder / "dialogues.jsonl", made)
    safetensors.torch.save_file(expected, folder / "expected.safetensors", {
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
        "trl": trl.__version__})
    print(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), "bytes")


if __name__ == "__main__":
    main()
