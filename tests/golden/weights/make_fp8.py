"""Weights of eight bits with scales, and what they stand for by numpy (tests/checkpoint/fp8_test.cpp).

    python3 make_fp8.py
"""

import pathlib

import numpy
import torch
from safetensors.torch import save_file

BLOCK = 128


def numbers(stored):
    """The values of float8_e4m3fn by its bits: sign, four of exponent, three of mantissa."""
    bits = stored.astype(numpy.int64)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = numpy.where(exponent == 0, mantissa / 512.0, (1 + mantissa / 8.0) * 2.0 ** (exponent - 7))
    return numpy.where(bits & 128, -value, value)


def main():
    random = numpy.random.default_rng(8)
    tensors = {}

    def add(name, shape, scales, each):
        stored = random.integers(0, 127, shape, dtype=numpy.uint8) | random.integers(0, 2, shape, dtype=numpy.uint8) << 7
        tensors[f"{name}.stored"] = torch.from_numpy(stored)
        tensors[f"{name}.scales"] = torch.from_numpy(numpy.asarray(scales, numpy.float32))
        tensors[f"{name}.values"] = torch.from_numpy((numbers(stored) * each(scales)).astype(numpy.float32))

    def by_block(rows, columns):
        return lambda scales: numpy.repeat(numpy.repeat(scales, BLOCK, -2)[..., :rows, :], BLOCK, -1)[..., :columns]

    def powers(*shape):
        return numpy.asarray(2.0 ** random.integers(-9, -2, shape) * 1.25)

    add("blocks", (200, 140), powers(2, 2), by_block(200, 140))
    add("narrow", (24, 20), powers(1, 1), by_block(24, 20))
    add("rows", (6, 10), powers(6, 1), lambda scales: scales)
    add("whole", (6, 10), powers(), lambda scales: scales)
    add("stack", (2, 130, 8), powers(2, 2, 1), by_block(130, 8))
    save_file(tensors, pathlib.Path(__file__).parent / "fp8.safetensors")


main()
