"""Plays a file of small programs with PyTorch and prints what player.cpp prints for minitensor.

    reference.py programs.txt [--shake SEED]
    reference.py --serve             what run talks to

--shake moves every result that had to be rounded by a few units in the last place, equal values alike.
Where the answer moves as well, it is the program that is sensitive, and not one library that is wrong.
The seed -1 instead hands copies to each operation that neither views nor writes, so that nothing that a
derivative needs is ever overwritten.
"""

import math
import sys
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True, warn_only=True)

# The Python that stands for each operation; {0}, {1} ... are its arguments.
TABLE = {
    # Make
    "tensor": "torch.tensor({2}, dtype={0}).reshape({1}).clone().requires_grad_({3})",
    "zeros": "torch.zeros({0}, dtype={1})",
    "ones": "torch.ones({0}, dtype={1})",
    "full": "torch.full({0}, {1}, dtype={2})",
    "full.dtype": "torch.full({0}, {1})",
    "empty": "torch.empty({0}, dtype={1}).fill_({2})",
    "eye": "torch.eye({0}, dtype={1})",
    "arange": "torch.arange({0}, {1}, {2}, dtype={3})",
    "arange.dtype": "torch.arange({0}, {1}, {2})",
    "linspace": "torch.linspace({0}, {1}, {2}, dtype={3})",
    "zeros_like": "torch.zeros_like({0})",
    "ones_like": "torch.ones_like({0})",
    "full_like": "torch.full_like({0}, {1})",
    "empty_like": "torch.empty_like({0}).fill_({1})",
    # Change kind
    "to": "{0}.to({1})",
    "clone": "{0}.clone()",
    "contiguous": "{0}.contiguous()",
    "detach": "{0}.detach()",
    "cpu": "{0}.cpu()",
    "requires_grad_": "{0}.requires_grad_({1})",
    "named": "{0}",
    "retain_grad": "({0}.retain_grad(), {0})[1]",
    # Index
    "operator[]": "{0}[{1}]",
    "operator[].tensor": "{0}[{1}]",
    "select": "{0}.select({1}, {2})",
    "slice": "torch.ops.aten.slice({0}, {1}, {2}, {3}, {4})",
    "narrow": "{0}.narrow({1}, {2}, {3})",
    "at": "{0}[tuple({1})]",
    "index_select": "{0}.index_select({1}, {2})",
    "gather": "{0}.gather({1}, {2})",
    "take_along_dim": "{0}.take_along_dim({2}, {1})",
    "take_along_dim.line": "torch.take_along_dim({0}, {1})",
    "scatter": "{0}.scatter({1}, {2}, {3})",
    "scatter.number": "{0}.scatter({1}, {2}, {3})",
    "scatter_add": "{0}.scatter_add({1}, {2}, {3})",
    "index_add": "{0}.index_add({1}, {2}, {3}, alpha={4})",
    "masked_fill": "{0}.masked_fill({1}, {2})",
    "masked_select": "{0}.masked_select({1})",
    "where": "torch.where({0}, {1}, {2})",
    # Shape
    "view": "{0}.view({1})",
    "reshape": "{0}.reshape({1})",
    "flatten": "{0}.flatten({1}, {2})",
    "unflatten": "{0}.unflatten({1}, {2})",
    "squeeze": "{0}.squeeze()",
    "squeeze.axis": "{0}.squeeze({1})",
    "unsqueeze": "{0}.unsqueeze({1})",
    "transpose": "{0}.transpose({1}, {2})",
    "t": "{0}.t()",
    "permute": "{0}.permute({1})",
    "movedim": "{0}.movedim({1}, {2})",
    "expand": "{0}.expand({1})",
    "expand_as": "{0}.expand_as({1})",
    "broadcast_to": "{0}.broadcast_to({1})",
    "repeat": "{0}.repeat({1})",
    "cat": "torch.cat({0}, {1})",
    "stack": "torch.stack({0}, {1})",
    "hstack": "torch.hstack({0})",
    "vstack": "torch.vstack({0})",
    "meshgrid": "torch.meshgrid(*{0}, indexing={1})",
    "split": "{0}.split({1}, {2})",
    "split.sizes": "{0}.split({1}, {2})",
    "chunk": "{0}.chunk({1}, {2})",
    "unbind": "{0}.unbind({1})",
    "flip": "{0}.flip({1})",
    "roll": "{0}.roll({1}, {2})",
    "roll.line": "{0}.roll({1})",
    "tril": "{0}.tril({1})",
    "triu": "{0}.triu({1})",
    "pad": "F.pad({0}, {1}, value={2})",
    "diagonal": "{0}.diagonal({1}, {2}, {3})",
    "unfold": "{0}.unfold({1}, {2}, {3})",
    # Elementwise
    **{sign: "{0} " + sign + " {1}" for sign in "+ - * / == != < <= > >= & | ^".split()},
    "~": "~{0}",
    "pow": "{0}.pow({1})",
    "pow.base": "torch.pow({0}, {1})",
    **{name: "{0}." + name + "()" for name in (
        "neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan asin "
        "acos atan sinh cosh tanh erf sigmoid relu floor ceil round trunc isnan isinf isfinite "
        "logical_not").split()},
    **{name: "{0}." + name + "({1})" for name in (
        "logical_and logical_or logical_xor maximum minimum atan2 floor_divide fmod remainder").split()},
    "equal": "torch.tensor(torch.equal({0}, {1}))",
    "allclose": "torch.tensor({0}.allclose({1}, {2}, {3}, {4}))",
    "logsigmoid": "F.logsigmoid({0})",
    "leaky_relu": "F.leaky_relu({0}, {1})",
    "elu": "F.elu({0}, {1})",
    "gelu": "F.gelu({0}, approximate={1})",
    "silu": "F.silu({0})",
    "softplus": "F.softplus({0}, {1}, {2})",
    "hardtanh": "F.hardtanh({0}, {1}, {2})",
    "clamp": "{0}.clamp({1}, {2})",
    "clamp.number": "{0}.clamp({1})",
    "clamp.tensors": "{0}.clamp({1}, {2})",
    "clip": "{0}.clip({1}, {2})",
    "clip.numbers": "torch.clip({0}, {1}, {2})",
    "div": "{0}.div({1}, rounding_mode={2} or None)",
    "lerp": "{0}.lerp({1}, {2})",
    # In place
    **{name: "{0}." + name + "({1})" for name in "add_ sub_ mul_ div_ fill_ copy_".split()},
    "+=": "{0}.__iadd__({1})",
    "-=": "{0}.__isub__({1})",
    "*=": "{0}.__imul__({1})",
    "/=": "{0}.__itruediv__({1})",
    "zero_": "{0}.zero_()",
    "clamp_": "{0}.clamp_({1}, {2})",
    "masked_fill_": "{0}.masked_fill_({1}, {2})",
    "[]=": "({0}.__setitem__({1}, {2}), {0})[1]",
    "[]=.tensor": "({0}.__setitem__({1}, {2}), {0})[1]",
    # Reduce
    **{name: "{0}." + name + "()" for name in
       "sum mean prod max min argmax argmin all any count_nonzero".split()},
    **{name + ".axes": "{0}." + name + "({1}, {2})" for name in ("sum", "mean")},
    **{name + ".dtype": "{0}." + name + "(dtype={1})" for name in ("sum", "mean", "prod")},
    **{name + ".dtype": "{0}." + name + "({1}, dtype={2})" for name in ("cumsum", "cumprod")},
    "prod.axis": "{0}.prod({1}, {2})",
    "all.axis": "{0}.all({1}, {2})",
    "any.axis": "{0}.any({1}, {2})",
    **{name + ".axis": "{0}." + name + "({1}, {2})" for name in "max min argmax argmin".split()},
    **{name: "{0}." + name + "({1}, {2})" for name in "amax amin logsumexp".split()},
    **{name: "{0}." + name + "(None, correction=int({1}))" for name in ("var", "std")},
    **{name + ".axes": "{0}." + name + "({1}, correction=int({2}), keepdim={3})" for name in ("var", "std")},
    "norm": "{0}.norm({1})",
    "norm.axes": "{0}.norm({1}, {2}, {3})",
    "norm.dtype": "{0}.norm({1}, {2}, {3}, dtype={4})",
    "norm.word": "{0}.norm({1})",
    "count_nonzero.axes": "{0}.count_nonzero({1})",
    "cumsum": "{0}.cumsum({1})",
    "cumprod": "{0}.cumprod({1})",
    "sort": "{0}.sort(dim={1}, descending={2}, stable=True)",
    "argsort": "{0}.sort(dim={1}, descending={2}, stable=True)[1]",
    "topk": "{0}.topk({1}, {2}, {3})",
    "softmax": "{0}.softmax({1})",
    "log_softmax": "{0}.log_softmax({1})",
    # Linear algebra
    **{name: "torch." + name + "({0}, {1})" for name in "matmul mm bmm mv dot outer".split()},
    "addmm": "torch.addmm({0}, {1}, {2}, beta={3}, alpha={4})",
    "einsum": "torch.einsum({0}, {1})",
    # Functional
    "linear": "F.linear({0}, {1}, {2})",
    "conv1d": "F.conv1d({0}, {1}, {2}, {3}, {4}, {5}, {6})",
    "conv2d": "F.conv2d({0}, {1}, {2}, {3}, {4}, {5}, {6})",
    "conv1d.same": "F.conv1d({0}, {1}, {2}, 1, 'same', {3}, {4})",
    "conv2d.same": "F.conv2d({0}, {1}, {2}, 1, 'same', {3}, {4})",
    "max_pool2d": "F.max_pool2d({0}, {1}, {2}, {3}, {4}, {5})",
    "max_pool2d.indices": "F.max_pool2d({0}, {1}, {2}, {3}, ceil_mode={4}, return_indices=True)",
    "avg_pool2d": "F.avg_pool2d({0}, {1}, {2}, {3}, {4}, {5}, {6})",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d({0}, ({1}, {2}))",
    "batch_norm": "F.batch_norm({0}, {1}, {2}, {3}, {4}, {5}, {6})",
    "layer_norm": "F.layer_norm({0}, {1}, {2}, {3})",
    "group_norm": "F.group_norm({0}, {1}, {2}, {3})",
    "dropout": "F.dropout({0}, {1}, {2})",
    "embedding": "F.embedding({0}, {1}, {2})",
    "one_hot": "F.one_hot({0}, {1})",
    "scaled_dot_product_attention": "attention({0}, {1}, {2}, {3}, {4})",
    "mse_loss": "F.mse_loss({0}, {1}, reduction={2})",
    "l1_loss": "F.l1_loss({0}, {1}, reduction={2})",
    "huber_loss": "F.huber_loss({0}, {1}, reduction={2}, delta={3})",
    "smooth_l1_loss": "F.smooth_l1_loss({0}, {1}, reduction={2}, beta={3})",
    "nll_loss": "F.nll_loss({0}, {1}, {2}, ignore_index={3}, reduction={4})",
    "cross_entropy": "F.cross_entropy({0}, {1}, {2}, ignore_index={3}, reduction={4}, label_smoothing={5})",
    "binary_cross_entropy": "F.binary_cross_entropy({0}, {1}, reduction={2}, weight={3})",
    "binary_cross_entropy_with_logits":
        "F.binary_cross_entropy_with_logits({0}, {1}, reduction={2}, pos_weight={3}, weight={4})",
    "kl_div": "F.kl_div({0}, {1}, reduction={2}, log_target={3})",
    # Autograd
    "backward": "{0}.backward(retain_graph={1} or {2}, create_graph={2})",
    "backward.gradient": "{0}.backward({1})",
    "grad": "torch.autograd.grad({0}, {1}, create_graph={2}, allow_unused={3})",
    "grad.of": "{0}.grad",
    "set_grad": "setattr({0}, 'grad', {1}.clone())",
    "zero_grad": "setattr({0}, 'grad', None)",
}

# Results that no rounding can touch: never shaken.
EXACT = set("tensor zeros ones full full.dtype empty eye zeros_like ones_like full_like empty_like".split())


# Operations that only compute: they neither show memory nor write into it.
KEEPERS = set("""tensor to clone contiguous detach cpu requires_grad_ retain_grad operator[] operator[].tensor select
slice narrow at
view reshape flatten unflatten squeeze squeeze.axis unsqueeze transpose t permute movedim expand expand_as
broadcast_to meshgrid split split.sizes chunk unbind diagonal unfold += -= *= /= []= []=.tensor backward
backward.gradient grad grad.of zero_grad set_grad named""".split())
COMPUTED = {name for name in TABLE if name not in KEEPERS and not name.endswith("_")}
SUMS = set("""sum mean var std norm logsumexp cumsum matmul mm bmm mv dot addmm einsum linear conv1d conv2d avg_pool2d
adaptive_avg_pool2d layer_norm group_norm batch_norm softmax log_softmax scaled_dot_product_attention""".split())
LISTS = {"cat", "stack", "hstack", "vstack", "einsum"}


def attention(query, key, value, mask, is_causal):
    """scaled_dot_product_attention is not in 1.13: what its documentation in 2.x says it is."""
    if is_causal and mask is not None:
        raise RuntimeError("is_causal and attn_mask exclude each other")
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if is_causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
        return torch.where(mask.expand(scores.shape).any(-1, True), scores, torch.zeros_like(scores)) \
            .softmax(-1).mul(mask.expand(scores.shape).any(-1, True)) @ value
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value


WORDS = {"none": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan, "torch": torch, "F": F,
         "attention": attention, "float32": torch.float32, "float64": torch.float64, "int64": torch.int64,
         "bool": torch.bool, "getattr": getattr, "setattr": setattr, "int": int, "tuple": tuple}
DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.bool: "bool"}


def python(line):
    """A statement as Python, for reading and for eval: (targets, expression)."""
    left, equals, right = line.rpartition(" = ")
    name, *arguments = right.split()
    return left.split(), TABLE[name].format(*arguments), arguments


def numbers(x):
    if x._is_zerotensor():  # zeros for which 1.13 has taken no memory
        x = torch.zeros(x.shape, dtype=x.dtype)
    return [("%.17g" % v if v == v else "nan") if isinstance(v, float) else "%d" % v
            for v in x.detach().flatten().tolist()]


def sizes(shape):
    return "[" + ",".join(map(str, shape)) + "]"


def memory(x):
    return x.storage().data_ptr()


def shaken(x, seed, summed):
    """x, each value moved by up to 4 units in the last place, which depends on the value alone.

    A sum may also be 0 by cancelling, so that its error is one of the largest value of x."""
    if not x.is_floating_point() or x.numel() == 0:
        return x
    step = 2.0 ** (-22 if x.dtype == torch.float32 else -51)
    if summed:
        whole = x.detach().double()
        scale = whole[whole.isfinite()].abs().max() if whole.isfinite().any() else 0
        return (x.double() + step * scale * torch.frac(torch.sin(whole * 12.9898 + seed) * 43758.5453)
                .nan_to_num(0.0, 0.0, 0.0)).to(x.dtype)
    values = x.detach()
    hashes = torch.frac(torch.sin(values.double() * 12.9898 + seed) * 43758.5453)
    factor = (1 + step * hashes).nan_to_num(1.0, 1.0, 1.0)
    return x * factor if x.dtype == torch.float64 else (x.double() * factor).to(x.dtype)


class Player:
    def __init__(self, shake):
        self.names, self.out, self.shake = {}, [], shake

    def result(self, y, first):
        if y is None:
            return " none"
        text = " " + DTYPES.get(y.dtype, str(y.dtype)) + sizes(y.shape)
        if y.requires_grad:
            text += "leaf" if y.is_leaf else "grad"
        if first is not None and y.numel() > 0 and memory(y) == memory(first):
            text += "at%d%s" % (y.storage_offset(), sizes(y.stride()))
        return text

    def play(self, line):
        targets, expression, words = python(line)
        name = line.rpartition(" = ")[2].split()[0]
        inside = [n for w in words if w.startswith("[") for n in w[1:-1].split(",") if n in self.names]
        first = next((self.names[w] for w in words if w in self.names), None)
        names = self.names
        if self.shake == -1 and name in COMPUTED:
            names = {n: x.clone() if n in words or name in LISTS else x for n, x in names.items()}
        grads = {n: x.grad for n, x in names.items() if x.is_leaf} if name == "grad" else {}
        found = eval(expression, WORDS, names)
        for n, g in grads.items():  # 1.13 may add to .grad here, against its documentation
            names[n].grad = g
        if found is None:
            found = () if name != "grad.of" else (None,)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        for i, y in enumerate(results):
            # PyTorch hands the layout of an operand on to a new result; ours are row-major.
            if y is None:
                continue
            quirk = not torch.is_grad_enabled() and y is not first and y.is_leaf and y.requires_grad
            if (first is not None or inside) and y.numel() == 0 and quirk:
                results[i] = y.detach()
                continue
            if first is not None and y.numel() > 0 and memory(y) == memory(first):
                # A view that 1.13 makes under no_grad says that it requires a gradient; not so in 2.x.
                if quirk:
                    results[i] = y.detach()
                continue
            if any(memory(y) == memory(self.names[n]) for n in inside) and y.numel() > 0:
                results[i] = y.detach() if quirk else y
                continue
            if y.numel() > 0 and y.stride() != torch.empty(y.shape).stride():
                results[i] = y = y.clone(memory_format=torch.contiguous_format)
            if self.shake == -1 and name in COMPUTED:
                results[i] = y.clone()
            elif self.shake > 0 and name not in EXACT:
                results[i] = shaken(y, self.shake, name.partition(".")[0] in SUMS)
        self.out.append("ok" + "".join(self.result(y, first) for y in results))
        for target, y in zip(targets, results):
            if y is not None:
                self.names[target] = y

    def statement(self, line):
        if line.startswith("no_grad"):
            torch.set_grad_enabled(line != "no_grad true")
            self.out.append("ok")
            return
        try:
            self.play(line)
        except Exception as error:  # whatever PyTorch raises
            self.out.append("error " + type(error).__name__ + ": " + str(error).split("\n")[0])

    def line(self, name, x):
        return " ".join([name, DTYPES.get(x.dtype, str(x.dtype)) + sizes(x.shape)] + numbers(x))

    def end(self):
        torch.set_grad_enabled(True)
        lines, gradients = [], []
        for name in sorted(self.names):
            x = self.names[name]
            try:
                lines.append(self.line(name, x))
                if x.grad is not None:
                    gradients.append(self.line("grad:" + name, x.grad))
            except RuntimeError:  # a part of split() after a write
                lines.append(name + " refused")
        self.out += lines + gradients
        self.names = {}


def play(text, shake=0):
    """All programs of a text; the lines that they print."""
    player = Player(shake)
    for line in text.split("\n"):
        if not line:
            continue
        if line.startswith("program"):
            player.end()
            player.out.append(line)
        else:
            player.statement(line)
    player.end()
    player.out.append("end")
    return player.out


def serve():
    """Answers texts from standard input, each behind "play LINES SHAKE", until it ends."""
    for request in sys.stdin:
        _, count, shake = request.split()
        text = "".join(sys.stdin.readline() for _ in range(int(count)))
        sys.stdout.write("\n".join(play(text, int(shake))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        sys.stdout.write("\n".join(play(open(sys.argv[1]).read(), int((sys.argv + [0, 0])[3]))) + "\n")
