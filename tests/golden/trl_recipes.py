"""Made-up dialogues, small random models, and what the library TRL computes of them: the loss of the assistant's turns
and all gradients. make_trl.py writes the golden from them, and scripts/peer_trl.py compares programs.
"""

import json
import random
import warnings

import datasets
import peft
import tokenizers
import torch
import transformers
import trl

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
datasets.disable_progress_bars()

# ChatML, with the marks by which TRL finds the assistant's turns, and the line end behind a turn within them.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "a cat sees the moon and nobody asks why it sings below an old bridge of stone in summer rain".split()


def dialogues(count, seed=5):
    """Of one to three questions, some with a system's message; the answers of some are long."""
    draw = random.Random(seed)

    def text(most):
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, most))).capitalize() + draw.choice(".!?")

    result = []
    for i in range(count):
        messages = [{"role": "system", "content": text(4)}] if i % 3 == 0 else []
        for _ in range(1 + i % 3):
            messages += [{"role": "user", "content": text(6)}, {"role": "assistant", "content": text(9 + i % 4 * 4)}]
        result.append(messages)
    return result


def write_dialogues(path, all_dialogues, as_pairs=False):
    """Our file of dialogues; `as_pairs`: of the first question and answer of each."""
    lines = []
    for messages in all_dialogues:
        question, answer = messages[-2]["content"], messages[-1]["content"]
        lines.append({"prompt": question, "answer": answer} if as_pairs else {"messages": messages})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def dataset_of(all_dialogues, as_pairs=False):
    """The same for TRL."""
    if not as_pairs:
        return datasets.Dataset.from_list([{"messages": messages} for messages in all_dialogues])
    return datasets.Dataset.from_list([{"prompt": messages[-2:-1], "completion": messages[-1:]}
                                       for messages in all_dialogues])


def tokenizer_of(merges):
    """Byte-level BPE with `merges` merges of the words above, and the tokens of ChatML."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=len(alphabet) + len(special) + merges, show_progress=False,
                                             initial_alphabet=alphabet, special_tokens=special)
    tokenizer.train_from_iterator([" ".join(WORDS * 5) + " user assistant system\n"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                                pad_token="<|endoftext|>", chat_template=TEMPLATE)


def model_of(name, vocab, width=16, layers=2, context=256):
    """A model in f32 whose weights are not near their start, where gradients of some would be nearly 0."""
    torch.manual_seed(3)
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "attn_implementation": "sdpa"}
    if name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=vocab, n_embd=width, n_layer=layers, n_head=2, n_positions=context, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, **tokens))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=vocab, hidden_size=width, intermediate_size=width + 8, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=context, **tokens))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def with_adapters(model, rank=3, alpha=5, size=0.3, **more):
    """Beside all linear layers of the blocks, with random matrices of this deviation, not with B = 0."""
    torch.manual_seed(7)
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, task_type="CAUSAL_LM",
        fan_in_fan_out=model.config.model_type == "gpt2", **({"target_modules": "all-linear"} | more)))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = size * torch.randn_like(parameter)
    return model


class Recorder(trl.SFTTrainer):
    """Keeps the losses of a step's micro-batches, which are parts of its mean."""

    losses, labels = (), 0

    def compute_loss(self, model, inputs, *args, **more):
        result = super().compute_loss(model, inputs, *args, **more)
        loss = result[0] if isinstance(result, tuple) else result
        self.losses = [*self.losses, loss.item()]
        self.labels += int((inputs["labels"][:, 1:] != -100).sum())
        return result


class Gradients(transformers.TrainerCallback):
    """The gradients just before the optimizer's step."""

    def __init__(self):
        self.found = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **more):
        self.found = {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()
                      if parameter.grad is not None}


def computed(model, tokenizer, data, context, folder, rows=1, **options):
    """One step of SFTTrainer over all of the data, `rows` of it at a time -> (loss, targets, gradients by name)."""
    # Our context is the number of inputs; theirs counts the token behind the last input, too.
    shared = {"output_dir": str(folder), "max_length": context + 1, "max_steps": 1, "learning_rate": 1e-9,
              "max_grad_norm": 0.0, "bf16": False, "fp16": False, "gradient_checkpointing": False, "use_cpu": True,
              "report_to": "none", "save_strategy": "no", "per_device_train_batch_size": rows, "disable_tqdm": True,
              "dataloader_num_workers": 0, "optim": "sgd"}
    if "prompt" not in data.column_names:
        shared["assistant_only_loss"] = True
    gradients = Gradients()
    count = len(Recorder(model=model, args=trl.SFTConfig(**shared, **options), train_dataset=data,
                         processing_class=tokenizer).get_train_dataloader())
    trainer = Recorder(model=model, train_dataset=data, processing_class=tokenizer, callbacks=[gradients],
                       args=trl.SFTConfig(**shared, **options, gradient_accumulation_steps=count))
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return sum(trainer.losses), trainer.labels, gradients.found
