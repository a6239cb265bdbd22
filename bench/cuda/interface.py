"""The C interface of bench/cuda/shim.cu from Python, and a line for a result. Read next: bench/cuda/compare.py."""
import ctypes
import itertools


class Library:
    """The C interface; a failed call raises with the kernel's message."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.trireme_error.restype = self.lib.trireme_ladder_name.restype = ctypes.c_char_p
        self.lib.trireme_memory_ladder.restype = ctypes.c_char_p
        self.lib.trireme_ladder_limit.restype = self.lib.trireme_memory_flops.restype = ctypes.c_double

    def __call__(self, name, *arguments):
        converted = [ctypes.c_float(a) if isinstance(a, float) else ctypes.c_void_p(a.value) if isinstance(a, Pointer)
                     else ctypes.c_int(a) for a in arguments]
        if getattr(self.lib, "trireme_" + name)(*converted) != 0:
            raise RuntimeError(self.lib.trireme_error().decode())


    def ladder(self, attention):
        """The names of the levels of one of the ladders of examples/cuda_lab."""
        names = (self.lib.trireme_ladder_name(attention, level) for level in itertools.count())
        return [name.decode() for name in itertools.takewhile(lambda name: name is not None, names)]

    def ladder_limit(self, level):
        return self.lib.trireme_ladder_limit(level)

    def memory_ladders(self):
        """(number, name, FLOPs, levels) of each ladder that makes its own problems: of memory-bound kernels, which
        have 0 FLOPs, and of a few products. A level is (name, megabytes, least microseconds, forecast)."""
        names = map(self.lib.trireme_memory_ladder, itertools.count())
        names = enumerate(itertools.takewhile(lambda name: name is not None, names))
        return [(ladder, name.decode(), self.lib.trireme_memory_flops(ladder), list(self._memory_levels(ladder)))
                for ladder, name in names]

    def _memory_levels(self, ladder):
        name, numbers = ctypes.c_char_p(), [ctypes.c_double() for _ in range(3)]
        for level in itertools.count():
            if self.lib.trireme_memory_level(ladder, level, ctypes.byref(name), *map(ctypes.byref, numbers)) != 0:
                return
            yield name.value.decode(), *(number.value for number in numbers)

    def memory_error(self, level):
        """Error against f64 of the opened ladder's level, relative to the accepted error."""
        error = ctypes.c_double()
        self("memory_error", level, Pointer(ctypes.addressof(error)))
        return error.value


class Pointer:
    def __init__(self, value):
        self.value = value


def line_of(row):
    error = "" if row.get("error") is None else f" error {row['error']:.1e}"
    text = f"{row['case']:<52}{error}  " + ("  ".join(f"{who} {ms:.4g} ms" for who, ms in row["ms"].items()) or "not timed")
    for key, unit in (("tflops", "TFLOP/s"), ("gbytes_per_s", "GB/s")):
        if key in row:
            text += f"  {row[key]:.0f} {unit}"
    if "of_limit" in row:
        text += f"  {row['of_limit']:.0%} of the limit"
    return text + (f"  ratio {row['ratio']:.2f}" if "ratio" in row else "")
