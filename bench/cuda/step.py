#!/usr/bin/env python3
"""Times whole training steps on one GPU, of GPT-2 124M and of a small Llama: train_gpt against PyTorch with
torch.compile, in turns.

  bench/cuda/step.py --program build-gpu/bin/train_gpt --out step.json
  bench/cuda/step.py --model llama --program build-gpu/bin/train_gpt --out step.json
  bench/cuda/step.py --rehearse --program build/bin/train_gpt_emulated --out step.json

Both train in bf16 with f32 master weights, dropout off, clipping, and AdamW (PyTorch's fused one); PyTorch uses
scaled_dot_product_attention under autocast. Each turn is some steps; the first ones do not count, because they wait for
memory and, in PyTorch, for compilation. Results are medians over turns, and are written after each turn. A side that
fails is left out from then on; the other goes on. Utilisation is the part of the GPU's limit for dense bf16
(scripts/gpu/limits.py). Read next: bench/cuda/models.py, the models.
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
sys.path[:0] = [os.path.join(ROOT, "bench", "cuda"), os.path.join(ROOT, "scripts")]
from gpu import limits, machine  # noqa: E402
from models import MODELS, flags, flops_per_token, in_pytorch, small  # noqa: E402


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

    def command(self, steps, out):
        return [self.program, "--device", "cuda", "--dtype", self.dtype, "--data", self.data, "--tokenizer", "char",
                "--out", out, *flags(self.shape), "--steps", str(steps), "--log-every", "1", "--eval-batches", "1",
                "--dropout", "0"]

    def turn(self, skipped, timed, limit):
        """Ends the run after its last step: the checkpoint that would follow takes longer than all steps."""
        out = os.path.join(self.folder, f"run{time.monotonic_ns()}")
        metrics, steps, deadline = os.path.join(out, "metrics.jsonl"), [], time.monotonic() + limit
        # Of this process group, so that whoever ends this program ends train_gpt as well.
        with tempfile.TemporaryFile("w+") as errors, \
                subprocess.Popen(self.command(skipped + timed, out), stdout=subprocess.DEVNULL, stderr=errors) as run:
            while run.poll() is None and len(steps) < skipped + timed and time.monotonic() < deadline:
                time.sleep(0.05)
                steps = steps_of(metrics)
            status = run.poll()
            run.kill()
            errors.seek(0)
            said = errors.read().strip()[-600:]
        steps = steps_of(metrics)
        if len(steps) < skipped + timed:
            how = f"exit status {status}" if status is not None else f"no end after {limit:.0f} s; raise --within"
            raise RuntimeError(f"train_gpt made {len(steps)} of {skipped + timed} steps: {how}: {said}")
        return statistics.median(step["step_ms"] for step in steps[skipped:])


def steps_of(metrics):
    """The rows of a run's log, without a last line that is not complete."""
    if not os.path.exists(metrics):
        return []
    with open(metrics, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


class Torch:
    """One process for all turns, so that it compiles only once."""

    def __init__(self, shape, device):
        import torch  # not needed to rehearse
        self.torch, self.shape, self.device = torch, shape, device
        torch.manual_seed(1)
        model = in_pytorch(shape).to(device)
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

    def turn(self, skipped, timed, limit):
        deadline = time.perf_counter() + limit
        for _ in range(skipped):
            self.step()
        milliseconds = []
        for _ in range(timed):
            start = time.perf_counter()
            self.step()
            milliseconds.append(1e3 * (time.perf_counter() - start))
            if time.perf_counter() > deadline:
                break
        return statistics.median(milliseconds)


def torch_side(shape, rehearse):
    """None if a rehearsal has no PyTorch."""
    try:
        return Torch(shape, "cpu" if rehearse else "cuda")
    except ImportError as error:
        if rehearse:
            return None
        raise RuntimeError(f"{error}; expected PyTorch, to compare with; install it") from error


def row_of(shape, times, limit):
    """limit: FLOP/s of the GPU; None if unknown."""
    ms = {name: statistics.median(values) for name, values in times.items() if values}
    tokens = shape["batch"] * shape["context"]
    row = {"case": f"training step, {shape['name']}, {shape['layers']} layers, width {shape['width']}, "
                   f"B={shape['batch']} T={shape['context']}",
           "ms": ms, "turns": {name: len(values) for name, values in times.items()},
           "tokens_per_s": {name: 1e3 * tokens / value for name, value in ms.items()}}
    if limit:
        flops = flops_per_token(shape) * tokens
        row["utilisation"] = {name: flops / (value * 1e-3) / limit for name, value in ms.items()}
    if len(ms) == 2:
        row["ratio"] = ms["torch.compile"] / ms["trireme"]
    return row


class Measurement:
    """Turns of the sides with one model; what there is so far is written after each, behind the rows of `before`."""

    def __init__(self, options, shape, before):
        self.options, self.shape, self.times = options, shape, {}
        self.before, self.failures = before, list(before["failures"])
        self.deadline = time.perf_counter() + options.within
        found = None if options.rehearse else limits.of((machine.find_gpu() or {"name": ""})["name"])
        self.limit = found.flops if found else None

    def results(self):
        rows = [row_of(self.shape, self.times, self.limit)] if any(self.times.values()) else []
        return {"rows": self.before["rows"] + rows, "failures": self.failures}

    def save(self):
        with open(self.options.out + ".part", "w", encoding="utf-8") as out:
            json.dump(self.results(), out, indent=1)
        os.replace(self.options.out + ".part", self.options.out)

    def attempt(self, name, call):
        """The result; None if the call failed, which is written down."""
        try:
            return call()
        except (Exception, SystemExit) as error:
            self.failures.append({"case": f"training step, {self.shape['name']}, {name}",
                                  "error": f"{type(error).__name__}: {error}"[:1000]})
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            return None
        finally:
            self.save()

    def turn(self, sides, skipped, timed):
        for name in list(sides):
            left = self.deadline - time.perf_counter()
            if left < 2:
                return
            found = self.attempt(name, lambda: sides[name].turn(skipped, timed, left))
            if found is None:
                del sides[name]
            else:
                self.times.setdefault(name, []).append(found)
                print(f"{name}: {found:.1f} ms", flush=True)
                self.save()

    def run(self, folder, turns, skipped, timed):
        rehearse = self.options.rehearse
        sides = {"trireme": Ours(self.options.program, self.shape, folder, "f32" if rehearse else "bf16")}
        self.turn(sides, skipped, timed)  # before PyTorch compiles, which may take the rest of the time
        torch = self.attempt("torch.compile", lambda: torch_side(self.shape, rehearse))
        if torch is not None:
            sides["torch.compile"] = torch
            self.turn({"torch.compile": torch}, skipped, timed)
        for _ in range(turns - 1):
            self.turn(sides, skipped, timed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="train_gpt, built with CUDA")
    parser.add_argument("--out", required=True, help="JSON")
    parser.add_argument("--model", nargs="+", default=list(MODELS), choices=MODELS, help="[all]")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--within", type=float, default=900, metavar="SECONDS", help="for all turns of a model [900]")
    parser.add_argument("--rehearse", action="store_true", help="tiny models, an emulated GPU, PyTorch on the CPU")
    options = parser.parse_args()
    turns, skipped, timed = (1, 1, 2) if options.rehearse else (options.turns, 5, 20)
    results, good = {"rows": [], "failures": []}, True
    for model in options.model:
        measurement = Measurement(options, small(MODELS[model]) if options.rehearse else MODELS[model], results)
        with tempfile.TemporaryDirectory() as folder:
            measurement.run(folder, turns, skipped, timed)
        results = measurement.results()
        good = good and bool(measurement.times.get("trireme"))
    return 0 if good and not results["failures"] else 1


if __name__ == "__main__":
    sys.exit(main())
