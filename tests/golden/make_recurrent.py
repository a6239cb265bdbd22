#!/usr/bin/env python3
"""Make recurrent.safetensors: torch.nn.LSTM and torch.nn.GRU in float64.

    python3 tests/golden/make_recurrent.py

Each case has the parameters CASE.weights.NAME with their gradients CASE.grads.NAME; the inputs x [B, T, in], h0 and c0
[layers * directions, B, H]; the results y, h and c; the gradients dx, dh0 and dc0 of the sum of y, h and c, each
multiplied by its weights wy, wh and wc. tests/nn/recurrent_test.cpp says which options a case has.

packed.safetensors has the same for sequences of the lengths LENGTHS, packed by pack_padded_sequence.
"""


import torch

from make_goldens import save

BATCH, TIME, INPUT, HIDDEN = 3, 5, 4, 7
CASES = {
    "lstm": (torch.nn.LSTM, {}),
    "lstm_deep": (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "lstm_plain": (torch.nn.LSTM, {"num_layers": 2, "bias": False}),
    "gru": (torch.nn.GRU, {}),
    "gru_deep": (torch.nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "gru_plain": (torch.nn.GRU, {"num_layers": 2, "bias": False}),
}
LENGTHS = [3, 5, 1]


class Packed(torch.nn.Module):
    """A layer that is given packed sequences, and whose output is padded again."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, states):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
        y, last = self.layer(packed, states)
        return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=TIME)[0], last


def make(name, kind, options, tensors, wrap=lambda layer: layer):
    generator = torch.Generator().manual_seed(len(tensors))

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    layer = kind(INPUT, HIDDEN, batch_first=True, dtype=torch.float64, **options)
    for parameter in layer.parameters():
        parameter.data = 0.5 * normal(*parameter.shape).detach()
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    inputs = {"x": normal(BATCH, TIME, INPUT), "h0": normal(count, BATCH, HIDDEN)}
    if kind is torch.nn.LSTM:
        inputs["c0"] = normal(count, BATCH, HIDDEN)
        y, (h, c) = wrap(layer)(inputs["x"], (inputs["h0"], inputs["c0"]))
        results = {"y": y, "h": h, "c": c}
    else:
        y, h = wrap(layer)(inputs["x"], inputs["h0"])
        results = {"y": y, "h": h}
    weights = {"w" + key: normal(*value.shape) for key, value in results.items()}
    sum((value * weights["w" + key].detach()).sum() for key, value in results.items()).backward()
    found = inputs | results | weights | {"d" + key: value.grad for key, value in inputs.items()}
    found |= {"weights." + key: value for key, value in layer.named_parameters()}
    found |= {"grads." + key: value.grad for key, value in layer.named_parameters()}
    tensors |= {f"{name}.{key}": value.detach().contiguous().numpy() for key, value in found.items()}


def main():
    torch.set_num_threads(1)
    for file, wrap in (("recurrent", lambda layer: layer), ("packed", Packed)):
        tensors = {}
        for name, (kind, options) in CASES.items():
            make(name, kind, options, tensors, wrap)
        save(file, tensors)


if __name__ == "__main__":
    main()
