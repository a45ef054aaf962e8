"""The measured cases of ours.cpp, with PyTorch or NumPy: python3 theirs.py torch|numpy."""

import sys
import time


def measure(name, parts, call):
    call()
    calls = 1
    while True:  # a sample lasts at least 10 ms
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if time.perf_counter() - begin >= 0.01:
            break
        calls *= 2
    samples = []
    for _ in range(9):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - begin) / calls / parts)
    print(f"{name}\t{min(samples) * 1e9:.1f}")


def with_torch():
    import torch

    torch.set_num_threads(1)
    w = torch.tensor(0.9, requires_grad=True)
    x = torch.tensor(0.1, requires_grad=True)

    def scalar_graph():
        h = x
        for _ in range(50):
            h = h * w + x
        h.backward()
        w.grad = x.grad = None

    measure("scalar graph, an op", 100, scalar_graph)
    with torch.no_grad():
        tensors(torch.randn, torch.exp, torch.tanh, torch.sum, lambda t: t.t().contiguous())


def with_numpy():
    import numpy

    generator = numpy.random.default_rng(1)
    tensors(
        lambda *shape: generator.standard_normal(shape, dtype=numpy.float32),
        numpy.exp, numpy.tanh, numpy.sum, lambda t: numpy.ascontiguousarray(t.T),
    )


def tensors(randn, exp, tanh, total, transposed_copy):
    a, row, column = randn(1000, 1000), randn(1000), randn(1000, 1)
    measure("[1000,1000] + [1000]", 1, lambda: a + row)
    measure("[1000,1000] + [1000,1]", 1, lambda: a + column)
    measure("exp [1000,1000]", 1, lambda: exp(a))
    measure("tanh [1000,1000]", 1, lambda: tanh(a))
    measure("sum [1000,1000]", 1, lambda: total(a))
    measure("sum [1000,1000], axis 0", 1, lambda: total(a, 0))
    measure("sum [1000,1000], axis 1", 1, lambda: total(a, 1))
    measure("transposed copy [1000,1000]", 1, lambda: transposed_copy(a))
    m, n = randn(512, 512), randn(512, 512)
    measure("matmul [512,512]", 1, lambda: m @ n)
    measure("matmul [512,512], transposed", 1, lambda: m @ n.T)


if __name__ == "__main__":
    {"torch": with_torch, "numpy": with_numpy}[sys.argv[1]]()
