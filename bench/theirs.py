"""The measured cases of ours.cpp, with PyTorch or NumPy: python3 theirs.py torch|numpy GROUP."""

import os
import resource
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


def with_torch(group):
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if group == "training":
        return training(torch)
    if group == "functions":
        with torch.no_grad():
            return functions(torch)
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
        a = torch.randn(1000, 1000)
        measure("sigmoid [1000,1000]", 1, lambda: torch.sigmoid(a))
        measure("gelu [1000,1000]", 1, lambda: torch.nn.functional.gelu(a))
        measure("softmax [1000,1000]", 1, lambda: torch.softmax(a, 1))
        p, q = torch.randn(32, 128, 64), torch.randn(32, 128, 64)
        measure("matmul [32,128,64], transposed", 1, lambda: p @ q.transpose(1, 2))
        images = torch.randn(64, 256, 56, 56)
        measure("mean of each channel, [64,256,56,56]", 1, lambda: images.mean((0, 2, 3)))
        tensors(torch.randn, torch.exp, torch.tanh, torch.sum, lambda t: t.t().contiguous())


def training(torch):
    nn = torch.nn

    def measure_step(name, net, optimizer, *shape):
        x, y = torch.randn(*shape), torch.randint(0, 10, (shape[0],))

        def step():
            optimizer.zero_grad(set_to_none=True)  # as PyTorch 2 does unasked, and as ours
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

        measure(name, 1, step)

    mlp = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    measure_step("MLP 784-128-10, batch 64, Adam", mlp, torch.optim.Adam(mlp.parameters()), 64, 784)
    linear = nn.Linear(1000, 10)
    measure_step("Linear(1000, 10), batch 64, Adam", linear, torch.optim.Adam(linear.parameters()), 64, 1000)
    lenet = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )
    measure_step("LeNet-5, batch 64, SGD", lenet, torch.optim.SGD(lenet.parameters(), lr=0.01), 64, 1, 28, 28)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of these three, MB\t{peak}")  # in KB


def functions(torch):
    F = torch.nn.functional
    a, b = torch.randn(1000, 1000), torch.randn(1000, 1000)
    positive, share, mask = a.abs() + 0.1, torch.rand(1000, 1000), a > 0
    cases = {
        "a + b": lambda: a + b, "a * b": lambda: a * b, "a / b": lambda: a / b, "a + 1.5": lambda: a + 1.5,
        "neg": lambda: -a, "abs": a.abs, "sqrt": positive.sqrt, "rsqrt": positive.rsqrt, "reciprocal": a.reciprocal,
        "pow(2)": lambda: a.pow(2), "pow(3)": lambda: a.pow(3), "pow(4)": lambda: a.pow(4),
        "pow(b)": lambda: positive.pow(b), "exp": a.exp, "expm1": a.expm1,
        "log": positive.log, "log1p": positive.log1p, "log2": positive.log2, "log10": positive.log10,
        "sin": a.sin, "cos": a.cos, "tan": a.tan, "asin": share.asin, "acos": share.acos, "atan": a.atan,
        "atan2": lambda: torch.atan2(a, b), "sinh": a.sinh, "cosh": a.cosh, "tanh": a.tanh, "sigmoid": a.sigmoid,
        "erf": a.erf, "floor": a.floor, "round": a.round, "trunc": a.trunc, "fmod": lambda: torch.fmod(a, b),
        "remainder": lambda: torch.remainder(a, b), "maximum": lambda: torch.maximum(a, b), "a < b": lambda: a < b,
        "where": lambda: torch.where(mask, a, b), "clamp": lambda: a.clamp(-1, 1), "relu": a.relu,
        "leaky_relu": lambda: F.leaky_relu(a), "elu": lambda: F.elu(a), "gelu": lambda: F.gelu(a),
        "silu": lambda: F.silu(a), "softplus": lambda: F.softplus(a), "logsigmoid": lambda: F.logsigmoid(a),
        "mse_loss": lambda: F.mse_loss(a, b), "prod(1)": lambda: a.prod(1), "amax(1)": lambda: a.amax(1),
        "argmax(1)": lambda: a.argmax(1), "std()": a.std, "var(1)": lambda: a.var(1), "norm()": a.norm,
        "logsumexp(1)": lambda: a.logsumexp(1), "log_softmax(1)": lambda: a.log_softmax(1),
        "layer_norm": lambda: F.layer_norm(a, (1000,)), "cumsum(1)": lambda: a.cumsum(1),
        "topk(5, 1)": lambda: a.topk(5, 1), "sort(1)": lambda: a.sort(1),
    }
    for name, call in cases.items():
        measure(name, 1, call)


def with_numpy(group):
    if group != "tensors":
        return
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
    {"torch": with_torch, "numpy": with_numpy}[sys.argv[1]](sys.argv[2])
