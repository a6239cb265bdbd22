"""The most that a GPU can do, by its name: the one table that reports, comparisons and forecasts use.

FLOP/s are those of dense products in bf16, by NVIDIA's data sheets. They hold at one clock: that at which all tensor
cores together do so many. Memory: bytes per second by the data sheet and, where known, what copies reach.
"""
import re
from dataclasses import dataclass

FLOPS_PER_CLOCK = {"A100": 2048, "H100": 4096, "H200": 4096}  # of a multiprocessor (white papers)


@dataclass(frozen=True)
class Limits:
    name: str
    pattern: str  # in the name that the driver gives
    multiprocessors: int
    flops: float
    memory: float
    copied: float = 0.0  # by copies, measured; 0: not known

    def bandwidth(self):
        """What a kernel that memory bounds is compared with."""
        return self.copied or self.memory

    def clock(self):
        """MHz at which `flops` holds."""
        return self.flops / (self.multiprocessors * FLOPS_PER_CLOCK[self.name[:4]]) / 1e6

    def flops_at(self, megahertz):
        return self.flops * megahertz / self.clock()


# The first whose pattern is found.
TABLE = [
    Limits("H200 NVL", r"H200 NVL", 132, 835e12, 4.8e12),
    Limits("H200", r"H200", 132, 989e12, 4.8e12, 4.26e12),
    Limits("H100 NVL", r"H100 NVL", 132, 835e12, 3.9e12),
    Limits("H100 PCIe", r"H100 PCIe", 114, 756e12, 2.0e12),
    Limits("H100", r"H100.*HBM3", 132, 989e12, 3.35e12, 3.0e12),
    Limits("A100 80 GB", r"A100.SXM4.80GB", 108, 312e12, 2.039e12),
    Limits("A100 80 GB PCIe", r"A100 80GB PCIe", 108, 312e12, 1.935e12),
    Limits("A100 40 GB", r"A100", 108, 312e12, 1.555e12),
]


def of(name):
    """The limits of the GPU with this name; None if the table does not have it."""
    return next((limits for limits in TABLE if re.search(limits.pattern, name)), None)


def megahertz(gpu):
    """The highest clock of its multiprocessors, from nvidia-smi's data; None if it is not there."""
    found = re.match(r"(\d+) MHz", gpu.get("clocks.max.sm", ""))
    return int(found[1]) if found else None


def statement(name, clock=None):
    """Lines for a report: what the GPU with this name can do, also at its own highest clock (MHz)."""
    found = of(name)
    if found is None:
        return f"The limits of {name} are not known: scripts/gpu/limits.py has none. Shares of limits are left out."
    text = f"Limits of the {found.name}: {found.flops / 1e12:.0f} TFLOP/s of dense bf16 at {found.clock():.0f} MHz"
    if clock:
        text += f" ({found.flops_at(clock) / 1e12:.0f} at {clock} MHz, the highest clock of this GPU)"
    text += f"; {found.memory / 1e12:.4g} TB/s of memory by the data sheet"
    if found.copied:
        text += f", of which copies reach about {found.copied / 1e12:.1f} TB/s"
    return text + "."


def share(limits, row):
    """Which part of its limit a result reached, by FLOP/s or else by bytes; None if neither is known."""
    if limits is None:
        return None
    if "tflops" in row:
        return row["tflops"] * 1e12 / limits.flops
    return row["gbytes_per_s"] * 1e9 / limits.bandwidth() if "gbytes_per_s" in row else None
