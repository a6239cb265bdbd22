"""The cases of bench/cuda/compare.py on a GPU, by what they measure. Each is a part of the class in bench/cuda/on_gpu.py."""
