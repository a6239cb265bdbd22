"""The C interface of bench/cuda/shim.cu from Python, and a line for a result. Read next: bench/cuda/compare.py."""
import ctypes
import itertools


class Library:
    """The C interface; a failed call raises with the kernel's message."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.trireme_error.restype = ctypes.c_char_p
        self.lib.trireme_ladder_name.restype = self.lib.trireme_ladder_level.restype = ctypes.c_char_p
        self.lib.trireme_ladder_flops.restype = self.lib.trireme_ladder_bytes.restype = ctypes.c_double

    def __call__(self, name, *arguments):
        converted = [ctypes.c_float(a) if isinstance(a, float) else ctypes.c_void_p(a.value) if isinstance(a, Pointer)
                     else ctypes.c_int(a) for a in arguments]
        if getattr(self.lib, "trireme_" + name)(*converted) != 0:
            raise RuntimeError(self.lib.trireme_error().decode())

    def ladders(self):
        """(number, name, names of the levels, {"flops" or "moved": what the last level does}) of each ladder of
        examples/cuda_lab."""
        for ladder, name in enumerate(self._texts(self.lib.trireme_ladder_name)):
            flops, moved = self.lib.trireme_ladder_flops(ladder), self.lib.trireme_ladder_bytes(ladder)
            levels = self._texts(lambda level, ladder=ladder: self.lib.trireme_ladder_level(ladder, level))
            yield ladder, name, levels, {"flops": flops} if flops else {"moved": moved}

    @staticmethod
    def _texts(of):
        return [text.decode() for text in itertools.takewhile(lambda text: text is not None, map(of, itertools.count()))]

    def ladder_error(self, level):
        """Error against f64 of the opened ladder's level, relative to the accepted error."""
        error = ctypes.c_double()
        self("ladder_error", level, Pointer(ctypes.addressof(error)))
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
