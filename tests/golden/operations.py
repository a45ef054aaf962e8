"""Makes operations.txt: what PyTorch computes at ordinary and at awkward numbers.

    python3 tests/golden/operations.py > tests/golden/operations.txt      (made with PyTorch 1.13)

A line is a name, a shape and the elements. For each operation: its value, and the gradients that
its inputs receive where every element of the value receives 1.
"""
import itertools
import torch

inf, nan = float("inf"), float("nan")


def write(name, x):
    shape = ",".join(str(size) for size in x.shape) or "-"
    print(name, shape, *["%.9g" % v for v in x.detach().flatten().tolist()])


def run(name, f, *inputs):
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    y = f(*leaves)
    write(name + ".y", y)
    if not y.requires_grad:
        return
    y.backward(torch.ones_like(y))
    for letter, x in zip("abc", leaves):
        if x.grad is not None:
            write(name + ".d" + letter, x.grad)


# ---- One input, element by element

awkward = torch.tensor([0.0, -0.0, 1, -1, 0.5, -2.5, 3, 0.3, 1e-8, -1e-30, 20, -20, 80, -80, 89, -104,
                        1e30, -1e30, inf, -inf, nan])
write("awkward", awkward)
for name in ("neg abs sign exp log sqrt sin cos tanh sigmoid relu square".split()):
    run(name, getattr(torch, name), awkward)
for n in (0, 1, 2, 3, -1, -2, inf):
    run("pow%g" % n, lambda a: a**n, awkward)
no_minus_inf = awkward[awkward != -inf]  # of which PyTorch takes roots that IEEE 754 does not
write("no_minus_inf", no_minus_inf)
for n in (0.5, -0.5, 1.5):
    run("pow%g" % n, lambda a: a**n, no_minus_inf)
for n in (0, 1, 2, 0.5, -2):
    run("base%g" % n, lambda a: torch.tensor(float(n)) ** a, awkward)
for name, f in {"add2": lambda a: a + 2, "sub2": lambda a: a - 2, "rsub2": lambda a: 2 - a,
                "mul0": lambda a: a * 0, "div0": lambda a: a / 0, "div2": lambda a: a / 2,
                "rdiv2": lambda a: 2 / a, "rdiv0": lambda a: 0 / a}.items():
    run(name, f, awkward)

# ---- Two inputs

few = [0.0, -0.0, 1, -2, 0.5, 3, inf, -inf, nan]
left, right = torch.tensor(list(itertools.product(few, few))).T.contiguous()
write("left", left)
write("right", right)
for name, f in {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
                "maximum": torch.maximum, "minimum": torch.minimum, "less": torch.lt,
                "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge,
                "equal": torch.eq, "not_equal": torch.ne,
                "where": lambda a, b: torch.where(a < b, a, b)}.items():
    run(name, f, left, right)

# ---- Reductions

rows = torch.tensor([[1, 2, 3], [3, 3, -1], [0.0, -0.0, 0], [inf, 1, -inf], [-inf, -inf, -inf],
                     [nan, 1, 2], [inf, inf, 0], [1000, 1000, -1000], [-inf, 0, 1]])
write("rows", rows)
for name, f in {"sum1": lambda a: a.sum(1), "sum0": lambda a: a.sum(0), "mean1": lambda a: a.mean(1, keepdim=True),
                "max1": lambda a: a.max(1).values, "min1": lambda a: a.min(1).values,
                "argmax1": lambda a: a.argmax(1), "softmax1": lambda a: a.softmax(1),
                "log_softmax1": lambda a: a.log_softmax(1)}.items():
    run(name, f, rows)
for i in range(4):  # amax shares a tie
    run("amax%d" % i, lambda a: a.amax(), rows[i])
    run("amin%d" % i, lambda a: a.amin(), rows[i])
run("maxnan", lambda a: a.max(), rows[5])
run("minnan", lambda a: a.min(), rows[5])

# ---- Matrix products

torch.manual_seed(1)
a, b = torch.randn(2, 3, 4), torch.randn(4, 5)
write("matrices", a)
write("matrix", b)
run("matmul", torch.matmul, a, b)
run("matmul_rows", torch.matmul, a[0], b)
run("matmul_vector", torch.matmul, a, b.T[0].contiguous())
run("dot", torch.matmul, a[0, 0], b.T[1].contiguous())

# ---- Losses

functional = torch.nn.functional
logits, classes = torch.randn(4, 3) * 3, torch.tensor([2, 0, -100, 1])
write("logits", logits)
write("classes", classes)
for reduction in ("mean", "sum", "none"):
    run("cross_entropy_" + reduction,
        lambda a: functional.cross_entropy(a, classes, reduction=reduction), logits)
    run("mse_" + reduction,
        lambda a: functional.mse_loss(a, torch.zeros(4, 3), reduction=reduction), logits)

# ---- More functions of one input

for name in ("exp2 expm1 log2 log10 log1p rsqrt reciprocal tan asin acos atan sinh cosh erf floor ceil round "
             "trunc isnan isinf isfinite logical_not".split()):
    run(name, getattr(torch, name), awkward)
halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609, -8388609])
write("halves", halves)
for name in "floor ceil round trunc".split():
    run(name + "_halves", getattr(torch, name), halves)
for name, f in {"logsigmoid": functional.logsigmoid, "leaky_relu": functional.leaky_relu,
                "leaky_relu2": lambda a: functional.leaky_relu(a, 2), "elu": functional.elu,
                "elu2": lambda a: functional.elu(a, 2), "gelu": functional.gelu,
                "gelu_tanh": lambda a: functional.gelu(a, approximate="tanh"), "silu": functional.silu,
                "softplus": functional.softplus, "softplus2": lambda a: functional.softplus(a, 2, 5),
                "clamp": lambda a: a.clamp(-1, 3), "clamp_min": lambda a: a.clamp(min=0.5),
                "clamp_max": lambda a: a.clamp(max=-1), "clamp_crossed": lambda a: a.clamp(3, -1),
                "hardtanh": functional.hardtanh}.items():
    run(name, f, awkward)

# ---- More functions of two

for name, f in {"atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
                "floor_divide": lambda a, b: torch.div(a, b, rounding_mode="floor"),
                "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
                "logical_and": torch.logical_and, "logical_or": torch.logical_or,
                "logical_xor": torch.logical_xor,
                "lerp": lambda a, b: torch.lerp(a, b, 0.25), "lerp_end": lambda a, b: torch.lerp(a, b, 1.0),
                "clamp_tensors": lambda a, b: torch.clamp(a, b, b + 1)}.items():
    run(name, f, left, right)
whole = torch.tensor(list(itertools.product([7, -7, 6, 1, 0], [2, -2, 3, -1]))).T.contiguous().float()
write("whole_left", whole[0])
write("whole_right", whole[1])
for name, f in {"fmod": torch.fmod, "remainder": torch.remainder, "floor_divide":
                lambda a, b: torch.div(a, b, rounding_mode="floor"), "trunc_divide":
                lambda a, b: torch.div(a, b, rounding_mode="trunc")}.items():
    run(name + "_whole", f, whole[0].long(), whole[1].long())
tenths = torch.tensor([[1, 0.1], [0.3, 0.1], [-0.3, 0.1], [4.5, -1.5], [1e20, 3]]).T.contiguous()
write("tenths_left", tenths[0])
write("tenths_right", tenths[1])
run("floor_divide_tenths", lambda a, b: torch.div(a, b, rounding_mode="floor"), tenths[0], tenths[1])
run("remainder_tenths", torch.remainder, tenths[0], tenths[1])

# ---- More reductions

for name, f in {"prod1": lambda a: a.prod(1), "var1": lambda a: a.var(1), "var0": lambda a: a.var(0, unbiased=False),
                "std1": lambda a: a.std(1), "norm1": lambda a: a.norm(1, 1), "norm2": lambda a: a.norm(2, 1),
                "norm3": lambda a: torch.linalg.vector_norm(a, 3, 1), "norminf": lambda a: a.norm(inf, 1),
                "norm-inf": lambda a: a.norm(-inf, 1), "norm0": lambda a: a.norm(0, 1),
                "logsumexp1": lambda a: a.logsumexp(1), "cumsum1": lambda a: a.cumsum(1),
                "cumprod1": lambda a: a.cumprod(1), "sort1": lambda a: a.sort(dim=1, stable=True).values,
                "sort1_down": lambda a: a.sort(dim=1, descending=True, stable=True).values,
                "argsort1": lambda a: a.sort(dim=1, stable=True).indices,
                "argsort1_down": lambda a: a.sort(dim=1, descending=True, stable=True).indices,
                "topk1": lambda a: a.topk(2, 1).values, "topk1_small": lambda a: a.topk(2, 1, False).values,
                "argmin1": lambda a: a.argmin(1), "all1": lambda a: (a != 0).all(1), "any1": lambda a: (a != 0).any(1),
                "count1": lambda a: a.count_nonzero(1)}.items():
    run(name, f, rows)

# ---- Picking, placing, and shapes

grid = torch.arange(24.0).reshape(2, 3, 4)
write("grid", grid)
for name, f in {
    "index_select": lambda a: a.index_select(1, torch.tensor([2, 0, 2])),
    "take_along_dim": lambda a: a.take_along_dim(torch.tensor([[[3], [0], [1]]]), 2),
    "scatter": lambda a: a.scatter(2, torch.tensor([[[3, 1], [0, 2], [1, 0]]]), a[1:, :, :2] + 100),
    "scatter_number": lambda a: a.scatter(0, torch.tensor([[[1, 0, 1, 0]]]), -1),
    "scatter_add": lambda a: a.scatter_add(1, torch.tensor([[[2, 2, 0, 1], [2, 0, 0, 1]]]), a[1:, :2] * 2),
    "index_add": lambda a: a.index_add(1, torch.tensor([0, 0]), a[:, 1:]),
    "masked_fill": lambda a: a.masked_fill(a > 10, -1),
    "masked_select": lambda a: a.masked_select(torch.tensor([True, False, False, True])),
    "movedim": lambda a: a.movedim(0, 2),
    "movedims": lambda a: a.movedim((0, 1), (-1, 0)),
    "expand_as": lambda a: a[:1].expand_as(a),
    "broadcast_to": lambda a: torch.broadcast_to(a[0, 0], (2, 4)),
    "repeat": lambda a: a.repeat(2, 1, 1, 2),
    "split": lambda a: a.split(2, 1)[1],
    "split_sizes": lambda a: a.split([1, 3], 2)[1],
    "chunk": lambda a: a.chunk(3, 2)[1],
    "unbind": lambda a: a.unbind(2)[1],
    "flip": lambda a: a.flip(0, 2),
    "roll": lambda a: a.roll(5),
    "roll_axes": lambda a: a.roll((1, -1), (1, 2)),
    "tril": lambda a: a.tril(),
    "tril_below": lambda a: a.tril(-1),
    "triu": lambda a: a.triu(1),
    "pad": lambda a: functional.pad(a, (1, 2)),
    "pad_crop": lambda a: functional.pad(a, (-1, 1, 1, -2, 0, 1), value=5),
    "diagonal": lambda a: a.diagonal(),
    "diagonal_far": lambda a: a.diagonal(-1, 2, 1),
    "diagonal_none": lambda a: a.diagonal(7, 1, 2),
    "unflatten": lambda a: a.unflatten(2, (2, 2)),
    "unfold": lambda a: a.unfold(2, 3, 1),
    "unfold_step": lambda a: a.unfold(1, 1, 2),
}.items():
    run(name + "_grid", f, grid)

# ---- Products by their names

A = torch.arange(6.0).reshape(2, 3)
B = torch.arange(12.0).reshape(3, 4)
S = torch.arange(9.0).reshape(3, 3)
G = torch.arange(24.0).reshape(2, 3, 4)
H = torch.arange(40.0).reshape(2, 4, 5)
K = torch.arange(8.0).reshape(4, 2)
K2 = torch.arange(20.0).reshape(5, 4)
U = torch.arange(1.0, 3.0)
V = torch.arange(1.0, 4.0)
M = torch.arange(24.0).reshape(4, 2, 3)
O = torch.arange(2.0).reshape(2, 1)
T = torch.arange(12.0).reshape(2, 2, 3)
M3 = M.reshape(4, 3, 2)
for i, (equation, operands) in enumerate([
    ("ij->ji", [A]),
    ("ij", [A]),
    ("ji", [A]),
    ("ii->i", [S]),
    ("ii", [S]),
    ("ij->", [A]),
    ("...ij->...ji", [G]),
    ("kji->j", [G]),
    ("ij,jk->ik", [A, B]),
    ("ij,jk", [A, B]),
    ("ij,kj", [A, A]),
    ("i,j->ij", [U, V]),
    ("i,i", [U, U]),
    ("ij,ij->i", [A, A]),
    ("ij,j->i", [A, V]),
    ("aij,ajk->aik", [G, H]),
    ("...ij,...jk->...ik", [G, H]),
    ("...j,jk->...k", [G, K]),
    ("bij,kj->bik", [G, K2]),
    ("ij,...jk->...ik", [A, M3]),
    ("Ba,ab->B", [A, B]),
    ("Ba,ab", [A, B]),
    ("ij,jk->ik", [O, B]),
    ("i...,j...->ij...", [A, A]),
    ("ii,ij->j", [S, S]),
    ("iij->j", [T]),
    (" i j , j k -> k i ", [A, B]),
    ("aij->j", [G]),
    ("...->...", [A]),
    ("a...,...a", [V, V]),
    ("i,ij,j->", [U, A, V]),
    ("ij,jk,kl->il", [A, B, K]),
    ("bi,bj,bk->ijk", [A, A, A]),
    ("ab...,b->a...", [M, U]),
]):
    write("einsum%d.y" % i, torch.einsum(equation, *operands))
write("addmm.y", torch.addmm(U.reshape(2, 1), A, B, beta=0.5, alpha=2))

# ---- Losses and layers

def wave(*shape):  # numbers between -1 and 1 that do not repeat
    n = 1
    for size in shape:
        n *= size
    return torch.sin(torch.arange(n) * 1.7 + n).reshape(shape)


target, probability, likely = wave(4, 3) * 2, (wave(4, 3) + 1) / 2, (wave(2, 6).reshape(4, 3) + 1) / 2
write("target", target)
write("probability", probability)
write("likely", likely)
for reduction in ("mean", "sum", "none"):
    for name, f in {
        "l1": lambda a: functional.l1_loss(a, target, reduction=reduction),
        "huber": lambda a: functional.huber_loss(a, target, reduction=reduction, delta=0.8),
        "smooth_l1": lambda a: functional.smooth_l1_loss(a, target, reduction=reduction, beta=0.5),
        "bce_logits": lambda a: functional.binary_cross_entropy_with_logits(a, probability, reduction=reduction),
        "bce_logits_weighted": lambda a: functional.binary_cross_entropy_with_logits(
            a, probability, torch.tensor([1, 2, 0.5]), reduction=reduction, pos_weight=torch.tensor([3, 1, 0.1])),
        "kl": lambda a: functional.kl_div(a, probability, reduction=reduction),
        "kl_log": lambda a: functional.kl_div(a, target, reduction=reduction, log_target=True),
        "nll": lambda a: functional.nll_loss(a, classes, reduction=reduction),
        "nll_weighted": lambda a: functional.nll_loss(a, classes, torch.tensor([1, 2, 0.5]), reduction=reduction),
        "ce_smooth": lambda a: functional.cross_entropy(a, classes, reduction=reduction, label_smoothing=0.2),
        "ce_smooth_weighted": lambda a: functional.cross_entropy(
            a, classes, torch.tensor([1, 2, 0.5]), reduction=reduction, label_smoothing=0.2),
        "ce_probabilities": lambda a: functional.cross_entropy(
            a, probability, torch.tensor([1, 2, 0.5]), reduction=reduction, label_smoothing=0.2),
    }.items():
        run(name + "_" + reduction, f, logits)
run("bce_mean", lambda a, b: functional.binary_cross_entropy(a, b), likely, probability)
certain = torch.tensor([0, 1, 0, 1.0])
write("certain", certain)
run("bce_certain", lambda a: functional.binary_cross_entropy(a, torch.tensor([0, 1, 1, 0.0]), reduction="none"), certain)
run("kl_batchmean", lambda a: functional.kl_div(a, probability, reduction="batchmean"), logits)
volume = wave(2, 3, 2, 2)
write("volume", volume)
many = torch.tensor([[[0, 1], [2, 1]], [[-100, 2], [0, 0]]])
run("ce_volume", lambda a: functional.cross_entropy(a, many, label_smoothing=0.1), volume)
run("nll_volume", lambda a: functional.nll_loss(a, many, torch.tensor([1, 2, 0.5])), volume)

image, kernels, offsets = wave(2, 4, 7, 6), wave(6, 2, 3, 2), wave(6)
write("image", image)
write("kernels", kernels)
write("offsets", offsets)
run("conv2d", lambda a, b, c: functional.conv2d(a, b, c, (2, 1), (1, 2), (2, 1), 2), image, kernels, offsets)
run("conv2d_plain", lambda a, b: functional.conv2d(a, b), image[:, :2], kernels)
run("conv1d", lambda a, b, c: functional.conv1d(a, b, c, 2, 1, 2, 2), image[0].reshape(1, 4, 42),
    kernels[:, :, :, 0].contiguous(), offsets)
run("max_pool2d", lambda a: functional.max_pool2d(a, (3, 2), (2, 1), 1), image)
run("max_pool2d_plain", lambda a: functional.max_pool2d(a, 2), image)
run("max_pool2d_dilated", lambda a: functional.max_pool2d(a, 2, 1, 0, 2), image)
run("avg_pool2d", lambda a: functional.avg_pool2d(a, (3, 2), (2, 1), 1), image)
run("avg_pool2d_inside", lambda a: functional.avg_pool2d(a, 3, 2, 1, count_include_pad=False), image)
run("adaptive_avg_pool2d", lambda a: functional.adaptive_avg_pool2d(a, (3, 4)), image)
run("layer_norm", lambda a, b, c: functional.layer_norm(a, (6,), b, c), image, offsets, offsets + 1)
channel = wave(4)
write("channel", channel)
run("group_norm", lambda a, b, c: functional.group_norm(a, 2, b, c), image, channel, channel + 1)
run("batch_norm", lambda a, b, c: functional.batch_norm(a, None, None, b, c, True), image, channel, channel + 1)
run("batch_norm_used", lambda a, b, c: functional.batch_norm(a, channel, channel + 2, b, c), image, channel, channel + 1)
running = [torch.zeros(4), torch.ones(4)]
functional.batch_norm(image, *running, training=True, momentum=0.3)
write("running_mean", running[0])
write("running_var", running[1])
run("linear", functional.linear, image, kernels.reshape(6, 12)[:, :6].contiguous(), offsets)

# ---- Options that are seldom used

run("max_pool2d_ceil", lambda a: functional.max_pool2d(a, 3, 2, 1, ceil_mode=True), image)
write("max_pool2d_ceil_indices", functional.max_pool2d(image, 3, 2, 1, ceil_mode=True, return_indices=True)[1])
run("avg_pool2d_ceil", lambda a: functional.avg_pool2d(a, 3, 2, 1, True), image)
run("avg_pool2d_ceil_inside", lambda a: functional.avg_pool2d(a, (2, 4), 3, 1, True, False), image)
run("avg_pool2d_divided", lambda a: functional.avg_pool2d(a, 2, divisor_override=3), image)
run("conv2d_same", lambda a, b, c: functional.conv2d(a, b, c, 1, "same", (2, 1), 2), image, kernels, offsets)
run("conv1d_same", lambda a, b, c: functional.conv1d(a, b, c, padding="same", dilation=3, groups=2),
    image[0].reshape(1, 4, 42), kernels[:, :, 0], offsets)
run("embedding_padding", lambda a: functional.embedding(torch.tensor([[1, 1], [0, 2]]), a, padding_idx=-3), target)
run("bce_weighted", lambda a, b: functional.binary_cross_entropy(a, b, torch.tensor([1, 2, 0.5])), likely, probability)
run("index_add_alpha", lambda a, b: a.index_add(0, torch.tensor([1, 3, 1, 0]), b, alpha=-0.5), target, logits)
run("take_along_line", lambda a: torch.take_along_dim(a, torch.tensor([[3, 0], [11, 3]])), target)
run("pick_mask", lambda a: a[a > 0], target)
run("pick_rows", lambda a: a[torch.tensor([True, False, True, False])], target)
run("pick_numbers", lambda a: a[torch.tensor([[0, -1], [2, 0]])], target)


def placed(index):
    def f(a, b):
        y = a * 1
        y[index] = b[:2]
        return y
    return f


run("place_rows", placed(torch.tensor([True, False, True, False])), target, logits)
run("place_numbers", placed(torch.tensor([-1, 0])), target, logits)
