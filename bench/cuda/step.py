#!/usr/bin/env python3
"""Times whole training steps of GPT-2 124M on one GPU: train_gpt against PyTorch with torch.compile, in turns.

  bench/cuda/step.py --program build-gpu/bin/train_gpt --out step.json
  bench/cuda/step.py --rehearse --program build/bin/train_gpt_emulated --out step.json

Both train in bf16 with f32 master weights, context 1024, dropout off, clipping, and AdamW (PyTorch's fused one); PyTorch
uses scaled_dot_product_attention under autocast. Each turn is some steps; the first ones do not count, because they
wait for memory and, in PyTorch, for compilation. Results are medians over turns. PyTorch's model is that of
bench/peers/pytorch_gpt.py. Utilisation counts 6 FLOPs a parameter and token plus 12 L D T for attention,
of 989 TFLOP/s.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEAK_FLOPS = 989e12  # H200 SXM, dense bf16 (NVIDIA's data sheet)
GPT2 = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304, "batch": 16}
SMALL = {"layers": 1, "heads": 2, "width": 32, "context": 16, "vocab": 64, "batch": 2}


def flops_per_token(s):
    parameters = 12 * s["layers"] * s["width"] ** 2 + s["vocab"] * s["width"]
    return 6 * parameters + 12 * s["layers"] * s["width"] * s["context"]


class Ours:
    """One run of train_gpt per turn; its log has the times of the last steps."""

    def __init__(self, program, shape, folder, dtype):
        self.program, self.shape, self.folder, self.dtype = program, shape, folder, dtype
        self.data = os.path.join(folder, "text.txt")  # 64 characters, in an order that does not repeat
        with open(self.data, "w", encoding="ascii") as out:
            state = 1
            for _ in range(200 * shape["context"]):
                state = (state * 1103515245 + 12345) % 2**31
                out.write(chr(ord("!") + (state >> 16) % 64))

    def turn(self, skipped, timed):
        s, out = self.shape, os.path.join(self.folder, f"run{time.monotonic_ns()}")
        command = [self.program, "--device", "cuda", "--dtype", self.dtype, "--data", self.data, "--tokenizer", "char",
                   "--out", out, "--layers", s["layers"], "--heads", s["heads"], "--width", s["width"], "--context",
                   s["context"], "--vocab", s["vocab"], "--micro-batch", s["batch"], "--steps", skipped + timed,
                   "--log-every", "1", "--eval-batches", "1", "--dropout", "0"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, timeout=300)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
            steps = [json.loads(line) for line in lines]
        return statistics.median(step["step_ms"] for step in steps[skipped:])


class Torch:
    """One process for all turns, so that it compiles only once."""

    def __init__(self, shape, device):
        import torch  # not needed to rehearse
        sys.path.insert(0, os.path.join(ROOT, "bench", "peers"))
        import pytorch_gpt
        self.torch, self.shape, self.device = torch, shape, device
        torch.manual_seed(1)
        settings = argparse.Namespace(**{k: shape[k] for k in ("layers", "heads", "width", "context")}, bias="on")
        model = pytorch_gpt.Gpt(shape["vocab"], settings).to(device)
        self.parameters = list(model.parameters())
        self.model = torch.compile(model) if device == "cuda" else model
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=True)

    def step(self):
        torch, s = self.torch, self.shape
        ids = torch.randint(s["vocab"], (2, s["batch"], s["context"]), device=self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.model(ids[0], ids[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()  # waits, like a program that logs its loss

    def turn(self, skipped, timed):
        for _ in range(skipped):
            self.step()
        milliseconds = []
        for _ in range(timed):
            start = time.perf_counter()
            self.step()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        return statistics.median(milliseconds)


def sides(options, shape, folder):
    found = {"trireme": Ours(options.program, shape, folder, "f32" if options.rehearse else "bf16")}
    try:
        found["torch.compile"] = Torch(shape, "cpu" if options.rehearse else "cuda")
    except ImportError as error:
        if not options.rehearse:
            raise SystemExit(f"step.py: {error}; expected PyTorch, to compare with; install it") from error
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="train_gpt, built with CUDA")
    parser.add_argument("--out", required=True, help="JSON")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rehearse", action="store_true", help="a tiny model, an emulated GPU, PyTorch on the CPU")
    options = parser.parse_args()
    shape, turns, skipped, timed = (SMALL, 1, 1, 2) if options.rehearse else (GPT2, options.turns, 5, 20)
    with tempfile.TemporaryDirectory() as folder:
        runners = sides(options, shape, folder)
        times = {name: [] for name in runners}
        for _ in range(turns):
            for name, runner in runners.items():
                times[name].append(runner.turn(skipped, timed))
    ms = {name: statistics.median(values) for name, values in times.items()}
    tokens = shape["batch"] * shape["context"]
    row = {"case": f"training step, {shape['layers']} layers, width {shape['width']}, B={shape['batch']} "
                   f"T={shape['context']}", "ms": ms,
           "tokens_per_s": {name: 1e3 * tokens / value for name, value in ms.items()},
           "utilisation": {name: flops_per_token(shape) * tokens / (value * 1e-3) / PEAK_FLOPS for name, value in ms.items()}}
    if "torch.compile" in ms:
        row["ratio"] = ms["torch.compile"] / ms["trireme"]
    for name, value in ms.items():
        print(f"{row['case']}: {name} {value:.1f} ms, {row['tokens_per_s'][name]:.0f} tokens/s, "
              f"{100 * row['utilisation'][name]:.1f}% of the tensor cores")
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump({"rows": [row], "failures": []}, out, indent=1)


if __name__ == "__main__":
    main()
