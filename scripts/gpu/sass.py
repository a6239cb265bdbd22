"""Machine code of kernels, read from the objects that nvcc made: which instructions an iteration of a loop issues, and how
many bytes it moves. Needs nvdisasm. Read next: scripts/gpu/implied.py, which turns the counts into times.

A loop has several ways through it: one for vectors and one for ragged ends, element by element; calls for the slow cases
of division and square root. Counted is the way with the most bytes in accesses of at least 8; of these the one with the
fewest calls and narrower accesses; of these the longest. Loops inside it are passed once. So the count is an upper bound
for what an iteration on whole vectors issues, if nothing loops inside.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass

CUDA_MACHINE = 190  # EM_CUDA, in the header of an ELF file
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # bytes of an access by its modifier; otherwise 4
NARROW = 8  # bytes; accesses of fewer are those of ragged ends


@dataclass(frozen=True)
class Instruction:
    address: int
    guard: str  # "@!P0", or empty
    opcode: str  # with modifiers: "LDG.E.128"
    operands: str
    target: int = -1  # of a branch

    def is_(self, *names):
        return self.opcode.split(".")[0] in names

    def guarded(self):
        """A guarded jump may not be taken. Uniform predicates of BRA.U are operands."""
        return bool(self.guard) or bool(re.match(r"!?UP\d,", self.operands))

    def bytes(self):
        """Of a load or store, by one thread."""
        return next((WIDTHS[part] for part in self.opcode.split(".")[1:] if part in WIDTHS), 4)


@dataclass(frozen=True)
class Path:
    """Instructions that one thread issues, once each."""
    instructions: tuple

    def count(self, *names):
        return sum(i.is_(*names) for i in self.instructions)

    def moved(self, name):
        """Bytes of a thread's accesses of this kind: LDG, STG, LDS and others."""
        return sum(i.bytes() for i in self.instructions if i.is_(name))

    def wide(self, name):
        """The same without ragged ends, unless all accesses are narrow."""
        return sum(i.bytes() for i in self.instructions if i.is_(name) and i.bytes() >= NARROW) or self.moved(name)


def weight(block):
    """What makes a way through this block preferred, most important first."""
    accesses = [i for i in block if i.is_("LDG", "STG")]
    wide = sum(i.bytes() for i in accesses if i.bytes() >= NARROW)
    avoided = sum(i.is_("CALL") for i in block) + sum(i.bytes() < NARROW for i in accesses)
    return wide, -avoided, len(block)


class Function:
    """A kernel's control flow: blocks of instructions without a branch inside, and the loops among them."""

    def __init__(self, name, instructions):
        self.name, self.instructions = name, instructions
        self.blocks = list(self._cut())
        self.next = [self._follows(n) for n in range(len(self.blocks))]
        self.order = self._reverse_postorder()
        self._find_loops()

    def main_path(self):
        """The path through the loop that loads most, or through the whole function if that loads twice as much."""
        whole = self.path(0, set(range(len(self.blocks))))
        loops = [self.path(header, body) for header, body in sorted(self.loops.items(), key=lambda loop: len(loop[1]))]
        best = max(loops, key=lambda path: (path.wide("LDG"), path.wide("STG")), default=whole)  # of equals the innermost
        return best if best.wide("LDG") > whole.wide("LDG") / 2 else whole

    def products(self):
        """The paths through the loops with products of warp groups, innermost first."""
        loops = [self.path(header, body) for header, body in sorted(self.loops.items(), key=lambda loop: len(loop[1]))]
        return [path for path in loops if path.count("HGMMA")]

    def path(self, header, body):
        """The way from a loop's header around to it, or to an EXIT, that the top of this file describes."""
        best = {}  # block: (weight of the way from here to the end, the block after it or None)
        for n in (n for n in reversed(self.order) if n in body):
            ways = [(best[to][0], to) for to in self.next[n] if to in best and (to, n) not in self.back and to != header]
            ends = not self.next[n] or any(to == header for to in self.next[n])
            if ways or ends:
                after, to = max(ways, default=((0, 0, 0), None))
                best[n] = (tuple(a + b for a, b in zip(weight(self.blocks[n]), after)), to)
        at, chosen = header, []
        while at is not None and at in best:
            chosen += self.blocks[at]
            at = best[at][1]
        return Path(tuple(chosen))

    def _cut(self):
        targets, block = {i.target for i in self.instructions}, []
        for i in self.instructions:
            if block and i.address in targets:
                yield block
                block = []
            block.append(i)
            if i.is_("BRA", "EXIT", "RET", "CALL"):
                yield block
                block = []
        if block:
            yield block

    def _follows(self, n):
        start = {block[0].address: at for at, block in enumerate(self.blocks)}
        jump = self.blocks[n][-1]
        follows = [] if jump.is_("EXIT", "BRA", "RET") and not jump.guarded() else [n + 1]
        if jump.is_("BRA"):
            follows.append(start[jump.target])
        return [to for to in follows if to < len(self.blocks)]

    def _reverse_postorder(self):
        order, seen, stack = [], {0}, [(0, iter(self.next[0]))]
        while stack:
            n, rest = stack[-1]
            to = next((to for to in rest if to not in seen), None)
            if to is None:
                order.append(n)
                stack.pop()
            else:
                seen.add(to)
                stack.append((to, iter(self.next[to])))
        return order[::-1]

    def _find_loops(self):
        """Sets back, (header, last block) of each branch back, and loops: header to blocks. By dominators."""
        before = {n: [] for n in self.order}
        for n in self.order:
            for to in self.next[n]:
                before[to].append(n)
        dominators = {0: {0}}
        changed = True
        while changed:
            changed = False
            for n in self.order[1:]:
                known = [dominators[b] for b in before[n] if b in dominators]
                mine = set.intersection(*known) | {n}
                changed |= dominators.get(n) != mine
                dominators[n] = mine
        self.back = {(to, n) for n in self.order for to in self.next[n] if to in dominators[n]}
        self.loops = {}
        for header, last in self.back:
            body, waiting = self.loops.setdefault(header, {header}), [last]
            while waiting:
                n = waiting.pop()
                if n not in body:
                    body.add(n)
                    waiting += before[n]


def nvdisasm(folder):
    """The path of nvdisasm: NVDISASM, or in PATH, or of the CUDA toolkit, or of Python's package, put into `folder`."""
    packaged = os.path.join(folder, "nvdisasm", "nvidia", "cu13", "bin", "nvdisasm")
    places = [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm", packaged]
    if found := next((path for path in places if path and os.path.exists(path)), None):
        return found
    installed = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target",
                                os.path.join(folder, "nvdisasm"), "nvidia-cuda-nvdisasm"], capture_output=True, text=True)
    if os.path.exists(packaged):
        return packaged
    raise SystemExit("sass.py: nvdisasm was not found; expected it in PATH, in /usr/local/cuda/bin or named by NVDISASM; "
                     f"pip could not install nvidia-cuda-nvdisasm: {installed.stderr.strip()[-500:]}")


def cubins(path):
    """The machine code for GPUs in an object: ELF files inside the ELF file, not compressed."""
    with open(path, "rb") as saved:
        data = saved.read()
    for found in re.finditer(rb"\x7fELF\x02\x01", data):
        header = data[found.start():found.start() + 64]
        if struct.unpack_from("<H", header, 18)[0] != CUDA_MACHINE:
            continue
        programs, sections = struct.unpack_from("<QQ", header, 32)
        program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", header, 54)
        end = max(programs + program_size * program_count, sections + section_size * section_count)
        yield data[found.start():found.start() + end]


# Seen on an H100: ptxas 13.0 computes max(min(x, N), 0) == N by the predicate of one instruction, which is also true
# for x below N. cuda/kernels/pieces.h says how to write it instead.
WRONG_COMPARISON = re.compile(r"VIMNMX\.RELU R\d+, P\d")


def listing(tool, cubin):
    """The machine code of a cubin as text."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


def architecture(text):
    return re.search(r"\.target\s+(\w+)", text)[1]


def wrong_comparisons(text):
    """The mangled names of the kernels of a listing that have a comparison which ptxas gets wrong."""
    names, current = [], None
    for line in text.splitlines():
        if found := re.match(r"\.text\.([\w$]+):", line):
            current = found[1]
        elif WRONG_COMPARISON.search(line) and current not in names:
            names.append(current)
    return names


def parse(text):
    functions, addresses, labels, lines = {}, {}, [], None
    for line in text.splitlines():
        if found := re.match(r"\.text\.([\w$]+):", line):
            lines = functions[found[1]] = []
        elif found := re.match(r"(\.L_x_\d+):", line):
            labels.append(found[1])
        elif found := re.match(r"\s+/\*([0-9a-f]+)\*/\s+(@!?U?P\w+)?\s*([\w.]+)(.*?);", line):
            address = int(found[1], 16)
            addresses.update((label, address) for label in labels)
            labels = []
            lines.append((address, found[2] or "", found[3], found[4].strip()))

    def instruction(address, guard, opcode, operands):
        label = re.search(r"`\((\.L_x_\d+)\)", operands)
        return Instruction(address, guard, opcode, operands, addresses[label[1]] if label else -1)

    return {name: Function(name, [instruction(*line) for line in lines]) for name, lines in functions.items()}
