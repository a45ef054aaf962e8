"""Writes small random programs, in the form that player.cpp explains.

Each operation has a function that draws its arguments and says what the result will look like, so that what
follows fits. One statement in twenty is then damaged, because what is refused has to agree as well.
"""

import keyword
import math
import random

FLOATS = ("float32", "float64")
KIND = {"bool": 0, "int64": 1, "float32": 2, "float64": 3}
NUMBER = {int: "int64", float: "float32", bool: "bool"}
OPERATIONS = {}  # name -> function(writer) -> (arguments, [(dtype, shape) of each result])


def operation(*names, weight=1):
    def add(draw):
        for name in names:
            OPERATIONS[name] = (draw, weight)
        return draw
    return add


class Known:
    """What the writer knows of a tensor."""

    def __init__(self, name, dtype, shape, grad=False, leaf=False):
        self.name, self.dtype, self.shape, self.grad, self.leaf = name, dtype, tuple(shape), grad, leaf

    def __str__(self):
        return self.name

    @property
    def rank(self):
        return len(self.shape)

    @property
    def numel(self):
        return math.prod(self.shape)


def text(argument):
    if argument is None:
        return "none"
    if isinstance(argument, bool):
        return "true" if argument else "false"
    if isinstance(argument, (list, tuple)):
        return "[" + ",".join(map(text, argument)) + "]"
    return repr(argument) if isinstance(argument, float) else str(argument)


def promoted(a, b):
    """The dtype of an operation on tensors or numbers: PyTorch's three priorities."""
    def parts(x):
        if isinstance(x, Known):
            return x.dtype, 2 if x.rank else 1
        return NUMBER[type(x)], 0
    (s, p), (t, q) = parts(a), parts(b)
    if p == q:
        return max(s, t, key=KIND.get)
    strong, weak = (s, t) if p > q else (t, s)
    if min(KIND[weak], 2) > min(KIND[strong], 2):
        return weak
    return strong


def as_float(dtype):
    return dtype if dtype in FLOATS else "float32"


def broadcast(*shapes):
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded))


class Writer:
    def __init__(self, seed, only=None):
        self.random = random.Random(seed)
        self.lines, self.tensors, self.drawn = [], [], []
        self.count = 0
        self.no_grad = False

    # ---- What is drawn ----

    def chance(self, p):
        return self.random.random() < p

    def pick(self, *choices):
        return self.random.choice(choices)

    def size(self):
        return self.random.choices((0, 1, 2, 3, 4, 5), (1, 12, 30, 30, 15, 6))[0]

    def shape(self, rank=None):
        if rank is None:
            rank = self.random.choices((0, 1, 2, 3, 4), (10, 25, 35, 22, 8))[0]
        while True:
            shape = tuple(self.size() for _ in range(rank))
            if math.prod(shape) <= 60:
                return shape

    def dtype(self):
        return self.random.choices(("float64", "float32", "int64", "bool"), (50, 25, 17, 8))[0]

    def number(self):
        return self.pick(-2, -1, 0, 1, 2, 3, 0.5, -0.75, 1.5, 2.0, 2.25, 3.0)

    def fitting(self, dtype):
        """A number that this dtype can hold; seldom not."""
        n = self.number()
        if dtype in FLOATS or self.chance(0.02):
            return n
        return int(n) if dtype == "int64" else int(n > 0)

    def axis(self, x):
        rank = max(x.rank, 1)
        return self.random.randrange(-rank, rank)

    def axes(self, x, least=1):
        axes = self.random.sample(range(x.rank), self.random.randint(min(least, x.rank), x.rank))
        return [a - x.rank if self.chance(0.3) else a for a in axes]

    def value(self, dtype, kind):
        r = self.random
        if dtype == "bool":
            return r.randint(0, 1)
        if dtype == "int64":
            return r.randint(0, 4) if kind == "positive" else r.randint(-4, 4)
        if kind == "edge" and self.chance(0.4):
            return r.choice((math.nan, math.inf, -math.inf, 0.0, 1e4, -1e4, 1e-4))
        if kind == "positive":
            return r.randint(1, 16) / 4
        if kind == "unit":
            return r.randint(-15, 15) / 16
        if kind == "probability":
            return r.randint(1, 15) / 16
        if kind == "eighths":
            return r.randint(-10, 12) / 4 + 0.125
        if kind == "smooth":
            return round(r.gauss(0, 1.5), 3)
        return r.randint(-12, 12) / 4

    # ---- What is written ----

    def name(self):
        self.count += 1
        n, name = self.count - 1, ""
        while True:
            name, n = chr(ord("a") + n % 26) + name, n // 26 - 1
            if n < 0:
                break
        return name if name not in ("e", "n", "inf", "nan") and not keyword.iskeyword(name) else name + "0"

    def new(self, shape, dtype=None, kind=None, grad=None, values=None):
        dtype = dtype or self.dtype()
        kind = kind or self.random.choices(("quarters", "smooth", "positive", "unit", "edge"),
                                           (45, 25, 12, 10, 8))[0]
        shape = tuple(shape)
        if values is None:
            values = [self.value(dtype, kind) for _ in range(math.prod(shape))]
        grad = dtype in FLOATS and self.chance(0.7) if grad is None else grad
        x = Known(self.name(), dtype, shape, grad, True)
        self.lines.append("%s = tensor %s %s %s %s" % (x.name, dtype, text(shape), text(values), text(grad)))
        self.drawn.append(("tensor", dtype, False))
        self.tensors.append(x)
        return x

    def any(self, dtypes=None, rank=None, least=0, kind=None, shape=None, full=False):
        """A tensor at hand that fits, or a new one."""
        fits = [x for x in self.tensors
                if (dtypes is None or x.dtype in dtypes) and (rank is None or x.rank == rank) and
                x.rank >= least and (shape is None or x.shape == tuple(shape)) and not (full and x.numel == 0)]
        if fits and kind is None and self.chance(0.85):
            return self.random.choice(fits[-4:])
        dtype = self.dtype()
        while dtypes and dtype not in dtypes:
            dtype = self.dtype()
        if shape is None:
            shape = self.shape(rank)
            while len(shape) < least or (full and math.prod(shape) == 0):
                shape = self.shape(rank if rank is not None else self.random.randint(least, 4))
        return self.new(shape, dtype, kind)

    def floating(self, **k):
        return self.any(dtypes=FLOATS, **k)

    def broadcastable(self, shape):
        """A shape that broadcasts with this one, to no more than a few elements."""
        if self.chance(0.45):
            return shape
        other = [1 if self.chance(0.35) else n for n in shape]
        if other and self.chance(0.4):
            other = other[self.random.randint(1, len(other)):]
        elif len(other) < 4 and self.chance(0.2):
            other = [self.random.randint(1, 2)] + other
        return tuple(other)

    def partner(self, x, numbers=True, dtypes=None):
        """What stands beside x in an elementwise operation."""
        if numbers and self.chance(0.25):
            return self.number()
        shape = self.broadcastable(x.shape)
        for y in reversed(self.tensors):
            if y is not x and y.shape == shape and (dtypes is None or y.dtype in dtypes) and self.chance(0.5):
                return y
        dtype = x.dtype if self.chance(0.6) else self.dtype()
        if dtypes and dtype not in dtypes:
            dtype = dtypes[0]
        return self.new(shape, dtype)

    def index(self, shape, size):
        values = [self.random.randrange(max(size, 1)) for _ in range(math.prod(shape))]
        return self.new(shape, "int64", values=values)

    def damaged(self, arguments):
        """One argument changed at random: mostly no longer what the operation takes."""
        arguments = list(arguments)
        places = [i for i, a in enumerate(arguments)
                  if isinstance(a, (int, list, tuple, Known)) and not isinstance(a, bool)]
        if not places:
            return arguments
        i = self.random.choice(places)
        a = arguments[i]
        if isinstance(a, Known):
            arguments[i] = self.random.choice(self.tensors)
        elif isinstance(a, int):
            arguments[i] = a + self.pick(-5, -2, -1, 1, 2, 5)
        elif a and isinstance(a[0], int):
            a = list(a)
            if self.chance(0.3):
                a.pop()
            elif self.chance(0.3):
                a.append(self.random.randint(-2, 3))
            else:
                a[self.random.randrange(len(a))] += self.pick(-4, -2, -1, 1, 2, 4)
            arguments[i] = a
        elif a and isinstance(a[0], Known):
            a = list(a)
            a[self.random.randrange(len(a))] = self.random.choice(self.tensors)
            arguments[i] = a
        return arguments

    def write(self, name, damage=0.0):
        draw, _ = OPERATIONS[name]
        drawn = draw(self)
        if drawn is None:
            return
        arguments, results = drawn
        tensors = [a for a in arguments if isinstance(a, Known)]
        for a in arguments:
            if isinstance(a, (list, tuple)):
                tensors += [t for t in a if isinstance(t, Known)]
        self.drawn.append((name, tensors[0].dtype if tensors else "", True))
        hurt = self.chance(damage)
        if hurt:
            arguments = self.damaged(arguments)
        targets = [Known(self.name(), dtype, shape, dtype in FLOATS and any(t.grad for t in tensors))
                   for dtype, shape in results]
        call = " ".join([name] + list(map(text, arguments)))
        self.lines.append(" ".join(t.name for t in targets) + " = " + call if targets else call)
        if not hurt:
            self.tensors += [t for t in targets if math.prod(t.shape) <= 400]
        return targets

    def target(self):
        """A tensor to write into: seldom a leaf that wants a gradient, because that is refused."""
        fits = [x for x in self.tensors if not (x.leaf and x.grad) or self.no_grad]
        if fits and self.chance(0.9):
            return self.random.choice(fits[-4:])
        return self.any()

    def loss(self):
        """A number that depends on each element of the latest results with another weight."""
        fits = [x for x in self.tensors if x.grad and not x.leaf and x.numel > 0][-3:]
        if not fits:
            return None
        total = None
        for x in self.random.sample(fits, min(len(fits), self.random.randint(1, 2))):
            weights = self.new(x.shape, x.dtype, "quarters", grad=False)
            y = self.emit("*", [x, weights], x.dtype, x.shape)
            y = self.emit("sum", [y], x.dtype, ())
            total = y if total is None else self.emit("+", [total, y], promoted(total, y), ())
        return total

    def emit(self, name, arguments, dtype, shape, grad=True):
        y = Known(self.name(), dtype, shape, grad)
        self.lines.append("%s = %s %s" % (y.name, name, " ".join(map(text, arguments))))
        self.drawn.append((name, dtype, True))
        return y

    def line(self, name, *arguments):
        self.lines.append(" ".join([name] + list(map(text, arguments))))
        self.drawn.append((name, "", True))


# ---- Make ---------------------------------------------------------------------------------------------------


@operation("zeros", "ones")
def _(w):
    shape, dtype = w.shape(), w.dtype()
    return [shape, dtype], [(dtype, shape)]


@operation("full")
def _(w):
    shape, dtype = w.shape(), w.dtype()
    return [shape, w.fitting(dtype), dtype], [(dtype, shape)]


@operation("empty")
def _(w):
    shape, dtype = w.shape(), w.dtype()
    return [shape, dtype, w.fitting(dtype)], [(dtype, shape)]


@operation("full.dtype")
def _(w):
    shape, n = w.shape(), w.number()
    return [shape, n], [(NUMBER[type(n)], shape)]


@operation("eye")
def _(w):
    n, dtype = w.random.randint(0, 4), w.dtype()
    return [n, dtype], [(dtype, (n, n))]


@operation("arange", "arange.dtype")
def _(w):
    return None


def arange(w):
    start, step = w.pick(0, 1, -2, 0.5), w.pick(1, 2, -1, 0.5, -0.75)
    n = w.random.randint(1, 6)
    stop = start + n * step
    dtype = "int64" if all(isinstance(v, int) for v in (start, step, stop)) else "float32"
    return start, stop, step, n, dtype


def _arange(w):
    start, stop, step, n, _ = arange(w)
    dtype = w.pick("float32", "float64")
    return [start, stop, step, dtype], [(dtype, (n,))]


def _arange_dtype(w):
    start, stop, step, n, dtype = arange(w)
    return [start, stop, step], [(dtype, (n,))]


OPERATIONS["arange"] = (_arange, 1)
OPERATIONS["arange.dtype"] = (_arange_dtype, 1)


@operation("linspace")
def _(w):
    n, dtype = w.random.randint(0, 6), w.pick(*FLOATS)
    return [w.number(), w.number(), n, dtype], [(dtype, (n,))]


@operation("zeros_like", "ones_like")
def _(w):
    x = w.any()
    return [x], [(x.dtype, x.shape)]


@operation("full_like", "empty_like")
def _(w):
    x = w.any()
    return [x, w.fitting(x.dtype)], [(x.dtype, x.shape)]


# ---- Change kind --------------------------------------------------------------------------------------------


@operation("to")
def _(w):
    x, dtype = w.any(), w.dtype()
    return [x, dtype], [(dtype, x.shape)]


@operation("clone", "contiguous", "detach", "cpu")
def _(w):
    x = w.any()
    return [x], [(x.dtype, x.shape)]


@operation("requires_grad_", weight=2)
def _(w):
    x = w.any()
    return [x, w.chance(0.8)], [(x.dtype, x.shape)]


@operation("named")
def _(w):
    x = w.any()
    return [x, '"x"'], [(x.dtype, x.shape)]


@operation("retain_grad", weight=1.5)
def _(w):
    x = w.floating()
    return [x], [(x.dtype, x.shape)]


# ---- Index --------------------------------------------------------------------------------------------------


def without(shape, axis):
    shape = list(shape)
    if shape:
        del shape[axis]
    return tuple(shape)


def replaced(shape, axis, size):
    shape = list(shape)
    if shape:
        shape[axis] = size
    return tuple(shape)


@operation("operator[]")
def _(w):
    x = w.any(least=1, full=True)
    return [x, w.random.randrange(-x.shape[0], x.shape[0])], [(x.dtype, x.shape[1:])]


def rows_of(w, x):
    """A mask over the first axes, or numbers of rows; and the shape of what they pick."""
    if w.chance(0.5):
        mask = w.new(x.shape[:w.random.randint(1, x.rank)], "bool")
        values = [int(v) for v in w.lines[-1].split()[4].strip("[]").split(",") if v]
        return mask, (sum(values),) + x.shape[mask.rank:]
    n, shape = x.shape[0], w.shape(w.random.randint(0, 2))
    return w.new(shape, "int64", values=w.random.choices(range(-n, n), k=math.prod(shape))), shape + x.shape[1:]


@operation("operator[].tensor")
def _(w):
    x = w.any(least=1, full=True)
    index, shape = rows_of(w, x)
    return [x, index], [(x.dtype, shape)]


@operation("select")
def _(w):
    x = w.any(least=1, full=True)
    axis = w.axis(x)
    return [x, axis, w.random.randrange(-x.shape[axis], x.shape[axis])], [(x.dtype, without(x.shape, axis))]


@operation("slice", weight=2)
def _(w):
    x = w.any(least=1)
    axis = w.axis(x)
    start, stop, step = w.random.randint(-6, 5), w.pick(None, *range(-6, 8)), w.pick(1, 1, 2, 3)
    length = len(range(x.shape[axis])[start:stop:step])
    return [x, axis, start, stop, step], [(x.dtype, replaced(x.shape, axis, length))]


@operation("narrow")
def _(w):
    x = w.any(least=1)
    axis = w.axis(x)
    start = w.random.randint(0, x.shape[axis])
    length = w.random.randint(0, x.shape[axis] - start)
    return [x, axis, start, length], [(x.dtype, replaced(x.shape, axis, length))]


@operation("at")
def _(w):
    x = w.any(least=1, full=True)
    n = w.random.randint(1, x.rank)
    return [x, [w.random.randrange(-s, s) for s in x.shape[:n]]], [(x.dtype, x.shape[n:])]


@operation("index_select")
def _(w):
    x = w.any(full=True)
    axis, n = w.axis(x), w.random.randint(1, 4)
    if not x.rank:
        n = 1
    index = w.index((n,), x.shape[axis] if x.rank else 1)
    return [x, axis, index], [(x.dtype, replaced(x.shape, axis, n))]


def under(w, x, axis):
    return tuple(w.random.randint(1, 4) if i == axis % x.rank else w.random.randint(1, n)
                 for i, n in enumerate(x.shape))


@operation("gather")
def _(w):
    x = w.any(full=True, least=1)
    axis = w.axis(x)
    index = w.index(under(w, x, axis), x.shape[axis])
    return [x, axis, index], [(x.dtype, index.shape)]


@operation("take_along_dim")
def _(w):
    x = w.any(full=True, least=1)
    axis = w.axis(x)
    shape = [w.random.randint(1, 4) if i == axis % x.rank else w.pick(1, n) for i, n in enumerate(x.shape)]
    index = w.index(shape, x.shape[axis])
    shape = [n if i == axis % x.rank else max(n, m) for i, (n, m) in enumerate(zip(shape, x.shape))]
    return [x, axis, index], [(x.dtype, shape)]


@operation("take_along_dim.line")
def _(w):
    x = w.any(full=True)
    index = w.index(w.shape(w.random.randint(0, 2)), x.numel)
    return [x, index], [(x.dtype, (index.numel,))]


@operation("scatter", "scatter_add")
def _(w):
    return None


def scattered(w, unique):
    x = w.any(full=True, least=1)
    axis = w.axis(x)
    shape = list(under(w, x, axis))
    shape[axis] = min(shape[axis], x.shape[axis])
    index = w.index(shape, x.shape[axis])
    if unique:  # two numbers for one place: PyTorch promises neither
        size, lines = x.shape[axis], {}
        values = []
        for i in range(math.prod(shape)):
            place, rest = [], i
            for n in reversed(shape):
                place.insert(0, rest % n)
                rest //= n
            line = tuple(p for j, p in enumerate(place) if j != axis % x.rank)
            if line not in lines:
                lines[line] = w.random.sample(range(size), size)
            values.append(lines[line][place[axis]])
        w.lines.pop()
        w.tensors.pop()
        w.drawn.pop()
        index = w.new(shape, "int64", values=values)
    return x, axis, index


def _scatter(w):
    x, axis, index = scattered(w, True)
    source = w.new(index.shape, x.dtype)
    return [x, axis, index, source], [(x.dtype, x.shape)]


def _scatter_add(w):
    x, axis, index = scattered(w, False)
    source = w.new(index.shape, x.dtype)
    return [x, axis, index, source], [(x.dtype, x.shape)]


OPERATIONS["scatter"] = (_scatter, 1)
OPERATIONS["scatter_add"] = (_scatter_add, 1)


@operation("scatter.number")
def _(w):
    x, axis, index = scattered(w, False)
    return [x, axis, index, w.fitting(x.dtype)], [(x.dtype, x.shape)]


@operation("index_add")
def _(w):
    x = w.any(full=True, least=1)
    axis, n = w.axis(x), w.random.randint(1, 4)
    index = w.index((n,), x.shape[axis])
    alpha = w.pick(1, 2, 0.5) if x.dtype in FLOATS else w.pick(1, 2, -1) if x.dtype == "int64" else 1
    return [x, axis, index, w.new(replaced(x.shape, axis, n), x.dtype), alpha], [(x.dtype, x.shape)]


def mask_for(w, x):
    shape = w.broadcastable(x.shape)
    if len(shape) > x.rank:
        shape = x.shape
    return w.new(shape, "bool")


@operation("masked_fill")
def _(w):
    x = w.any()
    value = w.fitting(x.dtype) if w.chance(0.7) else w.new((), x.dtype)
    return [x, mask_for(w, x), value], [(x.dtype, x.shape)]


@operation("masked_select")
def _(w):
    x = w.any()
    mask = mask_for(w, x)
    values = [int(v) for v in w.lines[-1].split()[4].strip("[]").split(",") if v]
    times = math.prod(broadcast(x.shape, mask.shape)) // max(mask.numel, 1)
    return [x, mask], [(x.dtype, (sum(values) * times,))]


@operation("where")
def _(w):
    a = w.any()
    b = w.partner(a)
    if isinstance(b, Known) and w.chance(0.15):
        a, b = b, w.number()
    elif w.chance(0.3) and isinstance(b, Known):
        a, b = w.number(), b
    shape = broadcast(*(x.shape for x in (a, b) if isinstance(x, Known)))
    mask = w.new(w.broadcastable(shape), "bool")
    return [mask, a, b], [(promoted(a, b), broadcast(shape, mask.shape))]


# ---- Shape --------------------------------------------------------------------------------------------------


def another_shape(w, numel):
    """A shape of as many elements."""
    shape, rest = [], numel
    if numel == 0:
        return [0, w.random.randint(1, 3)]
    for _ in range(w.random.randint(0, 3)):
        n = w.random.choice([n for n in range(1, rest + 1) if rest % n == 0])
        shape.append(n)
        rest //= n
    if rest != 1 or w.chance(0.2):
        shape.insert(w.random.randint(0, len(shape)), rest)
    return shape


@operation("view", "reshape", weight=1.5)
def _(w):
    x = w.any()
    shape = another_shape(w, x.numel)
    asked = list(shape)
    if asked and x.numel and w.chance(0.3):
        asked[w.random.randrange(len(asked))] = -1
    return [x, asked], [(x.dtype, shape)]


@operation("flatten")
def _(w):
    x = w.any()
    a, b = sorted(w.random.randrange(max(x.rank, 1)) for _ in range(2))
    shape = x.shape[:a] + (math.prod(x.shape[a:b + 1]),) + x.shape[b + 1:]
    return [x, a, b - max(x.rank, 1) if w.chance(0.5) else b], [(x.dtype, shape)]


@operation("unflatten")
def _(w):
    x = w.any(least=1, full=True)
    axis = w.axis(x)
    n = x.shape[axis]
    a = w.random.choice([m for m in range(1, n + 1) if n % m == 0])
    at = axis % x.rank
    return [x, axis, w.pick([a, n // a], [-1, n // a])], [(x.dtype, x.shape[:at] + (a, n // a) + x.shape[at + 1:])]


@operation("squeeze")
def _(w):
    x = w.any()
    return [x], [(x.dtype, [n for n in x.shape if n != 1])]


@operation("squeeze.axis")
def _(w):
    x = w.any()
    axis = w.axis(x)
    return [x, axis], [(x.dtype, without(x.shape, axis) if x.rank and x.shape[axis] == 1 else x.shape)]


@operation("unsqueeze")
def _(w):
    x = w.any()
    axis = w.random.randint(-x.rank - 1, x.rank)
    shape = list(x.shape)
    shape.insert(axis if axis >= 0 else axis + x.rank + 1, 1)
    return [x, axis], [(x.dtype, shape)]


@operation("transpose", weight=1.5)
def _(w):
    x = w.any()
    a, b = w.axis(x), w.axis(x)
    shape = list(x.shape)
    if shape:
        shape[a], shape[b] = shape[b], shape[a]
    return [x, a, b], [(x.dtype, shape)]


@operation("t")
def _(w):
    x = w.any(rank=w.pick(0, 1, 2, 2, 2))
    return [x], [(x.dtype, x.shape[::-1])]


@operation("permute")
def _(w):
    x = w.any()
    axes = w.random.sample(range(x.rank), x.rank)
    asked = [a - x.rank if w.chance(0.2) else a for a in axes]
    return [x, asked], [(x.dtype, [x.shape[a] for a in axes])]


@operation("movedim")
def _(w):
    x = w.any(least=1)
    n = w.random.randint(1, x.rank)
    source, target = w.random.sample(range(x.rank), n), w.random.sample(range(x.rank), n)
    axes = [None] * x.rank
    for s, t in zip(source, target):
        axes[t] = s
    rest = iter(a for a in range(x.rank) if a not in source)
    axes = [next(rest) if a is None else a for a in axes]
    return [x, source, target], [(x.dtype, [x.shape[a] for a in axes])]


def larger(w, x):
    shape = [w.random.randint(1, 3) if n == 1 else n for n in x.shape]
    while len(shape) < 4 and w.chance(0.4):
        shape.insert(0, w.random.randint(1, 2))
    return shape


@operation("expand", "broadcast_to")
def _(w):
    x = w.any()
    if 1 not in x.shape:
        x = w.new([1 if w.chance(0.5) else n for n in w.shape()])
    shape = larger(w, x)
    asked = [-1 if w.chance(0.2) and i >= len(shape) - x.rank else n for i, n in enumerate(shape)]
    return [x, asked], [(x.dtype, shape)]


@operation("expand_as")
def _(w):
    y = w.any()
    x = w.new([1 if w.chance(0.5) else n for n in y.shape])
    return [x, y], [(x.dtype, y.shape)]


@operation("repeat")
def _(w):
    x = w.any()
    times = [w.random.randint(1, 2) for _ in range(x.rank)]
    if w.chance(0.3):
        times.insert(0, 2)
    shape = (1,) * (len(times) - x.rank) + x.shape
    return [x, times], [(x.dtype, [n * t for n, t in zip(shape, times)])]


@operation("cat")
def _(w):
    x = w.any(least=1)
    axis = w.axis(x)
    others = [w.new(replaced(x.shape, axis, w.random.randint(1, 3)), x.dtype if w.chance(0.7) else None)
              for _ in range(w.random.randint(0, 2))]
    parts = w.random.sample([x] + others, len(others) + 1)
    if w.chance(0.1):  # what has the shape [0] is passed over
        parts.insert(w.random.randint(0, len(parts)), w.new((0,), x.dtype))
    dtype = max((p.dtype for p in parts), key=KIND.get)
    return [parts, axis], [(dtype, replaced(x.shape, axis, sum(p.shape[axis] for p in parts
                                                                 if p.shape != (0,))))]


@operation("stack")
def _(w):
    x = w.any()
    parts = [x] + [w.any(shape=x.shape, dtypes=[x.dtype]) for _ in range(w.random.randint(0, 2))]
    axis = w.random.randint(-x.rank - 1, x.rank)
    shape = list(x.shape)
    shape.insert(axis if axis >= 0 else axis + x.rank + 1, len(parts))
    return [parts, axis], [(x.dtype, shape)]


@operation("hstack")
def _(w):
    x = w.any()
    shape = x.shape or (1,)
    axis = 0 if len(shape) == 1 else 1
    others = [w.new(replaced(shape, axis, w.random.randint(1, 3)), x.dtype) for _ in range(w.random.randint(0, 2))]
    size = shape[axis] + sum(y.shape[axis] for y in others)
    return [[x] + others], [(x.dtype, replaced(shape, axis, size))]


@operation("vstack")
def _(w):
    x = w.any()
    shape = x.shape if x.rank > 1 else (1,) + (x.shape or (1,))
    others = [w.new(replaced(shape, 0, w.random.randint(1, 3)), x.dtype) for _ in range(w.random.randint(0, 2))]
    return [[x] + others], [(x.dtype, replaced(shape, 0, shape[0] + sum(y.shape[0] for y in others)))]


@operation("meshgrid")
def _(w):
    x = w.any(rank=w.pick(0, 1, 1, 1))
    lines = [x] + [w.new(w.shape(w.pick(0, 1, 1, 1)), x.dtype) for _ in range(w.random.randint(0, 2))]
    shape = tuple(line.numel for line in lines)
    xy = w.chance(0.5)
    if xy:
        shape = shape[1::-1] + shape[2:]
    return [lines, '"xy"' if xy else '"ij"'], [(x.dtype, shape)] * len(lines)


@operation("split")
def _(w):
    x = w.any(least=1, full=True)
    axis, size = w.axis(x), w.random.randint(1, 3)
    n = x.shape[axis]
    return [x, size, axis], [(x.dtype, replaced(x.shape, axis, min(size, n - i))) for i in range(0, n, size)]


@operation("split.sizes")
def _(w):
    x = w.any(least=1, full=True)
    axis = w.axis(x)
    a = w.random.randint(0, x.shape[axis])
    sizes = [a, x.shape[axis] - a]
    return [x, sizes, axis], [(x.dtype, replaced(x.shape, axis, n)) for n in sizes]


@operation("chunk")
def _(w):
    x = w.any(least=1, full=True)
    axis, count = w.axis(x), w.random.randint(1, 4)
    n = x.shape[axis]
    size = -(-n // count)
    return [x, count, axis], [(x.dtype, replaced(x.shape, axis, min(size, n - i))) for i in range(0, n, size)]


@operation("unbind")
def _(w):
    x = w.any(least=1, full=True)
    axis = w.axis(x)
    return [x, axis], [(x.dtype, without(x.shape, axis))] * x.shape[axis]


@operation("flip")
def _(w):
    x = w.any()
    return [x, w.axes(x, 0)], [(x.dtype, x.shape)]


@operation("roll")
def _(w):
    x = w.any(least=1)
    axes = w.axes(x)
    return [x, [w.random.randint(-4, 4) for _ in axes], axes], [(x.dtype, x.shape)]


@operation("roll.line")
def _(w):
    x = w.any(least=1)
    return [x, [w.random.randint(-4, 4)]], [(x.dtype, x.shape)]


@operation("tril", "triu")
def _(w):
    x = w.any(least=2)
    return [x, w.random.randint(-2, 2)], [(x.dtype, x.shape)]


@operation("pad")
def _(w):
    x = w.any(least=1)
    pads, shape = [], list(x.shape)
    for i in range(w.random.randint(1, x.rank)):
        n = shape[-1 - i]
        a, b = (w.random.randint(-1, 2) if n > 2 else w.random.randint(0, 2) for _ in range(2))
        pads += [a, b]
        shape[-1 - i] = n + a + b
    return [x, pads, w.fitting(x.dtype)], [(x.dtype, shape)]


@operation("diagonal")
def _(w):
    x = w.any(least=2)
    a, b = w.random.sample(range(x.rank), 2)
    offset = w.random.randint(-2, 2)
    m, n = x.shape[a], x.shape[b]
    length = max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))
    shape = [s for i, s in enumerate(x.shape) if i not in (a, b)] + [length]
    return [x, offset, a - x.rank if w.chance(0.3) else a, b], [(x.dtype, shape)]


@operation("unfold")
def _(w):
    x = w.any(least=1, full=True)
    axis = w.axis(x)
    size, step = w.random.randint(1, x.shape[axis]), w.random.randint(1, 3)
    return [x, axis, size, step], [(x.dtype, replaced(x.shape, axis, (x.shape[axis] - size) // step + 1) + (size,))]


# ---- Elementwise --------------------------------------------------------------------------------------------


def two(w):
    a = w.any()
    b = w.partner(a)
    if w.chance(0.2):
        a, b = b, a
    shape = broadcast(*(x.shape for x in (a, b) if isinstance(x, Known)))
    return a, b, promoted(a, b), shape


@operation("+", "*", weight=4)
def _(w):
    a, b, dtype, shape = two(w)
    return [a, b], [(dtype, shape)]


@operation("-", weight=3)
def _(w):
    a, b, dtype, shape = two(w)
    return [a, b], [(dtype, shape)]


@operation("/", weight=2)
def _(w):
    a, b, dtype, shape = two(w)
    return [a, b], [(as_float(dtype), shape)]


@operation("==", "!=", "<", "<=", ">", ">=")
def _(w):
    a, b, _, shape = two(w)
    return [a, b], [("bool", shape)]


@operation("&", "|", "^")
def _(w):
    a = w.any(dtypes=["bool"])
    b = w.partner(a, numbers=False, dtypes=["bool"])
    return [a, b], [("bool", broadcast(a.shape, b.shape))]


@operation("~")
def _(w):
    a = w.any(dtypes=["bool"])
    return [a], [("bool", a.shape)]


@operation("pow", weight=2)
def _(w):
    a = w.any(kind=w.pick(None, "positive"))
    b = w.partner(a)
    shape = broadcast(a.shape, b.shape) if isinstance(b, Known) else a.shape
    return [a, b], [(promoted(a, b), shape)]


@operation("pow.base")
def _(w):
    b, a = w.any(), abs(w.number())
    return [a, b], [(promoted(a, b), b.shape)]


@operation("neg", "abs", "sign", "square", "relu", "floor", "ceil", "round", "trunc")
def _(w):
    x = w.any()
    return [x], [(x.dtype, x.shape)]


@operation("exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "erf", "sigmoid",
           "reciprocal")
def _(w):
    x = w.any()
    return [x], [(as_float(x.dtype), x.shape)]


@operation("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
def _(w):
    x = w.any(kind=w.pick(None, "positive"))
    return [x], [(as_float(x.dtype), x.shape)]


@operation("asin", "acos")
def _(w):
    x = w.any(kind=w.pick(None, "unit"))
    return [x], [(as_float(x.dtype), x.shape)]


@operation("isnan", "isinf", "isfinite", "logical_not")
def _(w):
    x = w.any()
    return [x], [("bool", x.shape)]


@operation("logical_and", "logical_or", "logical_xor")
def _(w):
    a = w.any()
    b = w.partner(a, numbers=False)
    return [a, b], [("bool", broadcast(a.shape, b.shape))]


@operation("equal")
def _(w):
    a = w.any()
    b = w.partner(a, numbers=False) if w.chance(0.5) else a
    return [a, b], [("bool", ())]


@operation("allclose")
def _(w):
    a = w.any()
    b = w.partner(a, numbers=False, dtypes=[a.dtype]) if w.chance(0.5) else a
    return [a, b, w.pick(1e-5, 0.1, 0.5), w.pick(1e-8, 0.5, 2.0), w.chance(0.5)], [("bool", ())]


@operation("logsigmoid", "silu")
def _(w):
    x = w.floating()
    return [x], [(x.dtype, x.shape)]


@operation("leaky_relu")
def _(w):
    x = w.floating()
    return [x, w.pick(0.01, 0.25, 0.0)], [(x.dtype, x.shape)]


@operation("elu")
def _(w):
    x = w.floating()
    return [x, w.pick(1.0, 0.5, 2.0)], [(x.dtype, x.shape)]


@operation("gelu")
def _(w):
    x = w.floating()
    return [x, w.pick('"none"', '"tanh"')], [(x.dtype, x.shape)]


@operation("softplus")
def _(w):
    x = w.floating()
    return [x, w.pick(1.0, 2.0, 0.5), w.pick(20.0, 1.1)], [(x.dtype, x.shape)]


@operation("hardtanh")
def _(w):
    x = w.floating()
    return [x, w.pick(-1.0, -0.5), w.pick(1.0, 2.0)], [(x.dtype, x.shape)]


@operation("clamp", "clip")
def _(w):
    x = w.any()
    low, high = w.pick((-1, 1), (None, 2), (0, None), (-0.5, 1.5), (2, -1), (None, 0.75))
    dtype = x.dtype
    for n in (low, high):
        if n is not None:
            dtype = promoted(Known("", dtype, x.shape), n)
    return [x, low, high], [(dtype, x.shape)]


@operation("clamp.number")
def _(w):
    x, low = w.any(), w.number()
    return [x, low], [(promoted(x, low), x.shape)]


@operation("clip.numbers")
def _(w):
    x, low, high = w.any(), w.number(), w.number()
    return [x, low, high], [(promoted(Known("", promoted(x, low), x.shape), high), x.shape)]


@operation("clamp.tensors")
def _(w):
    x = w.any()
    low = w.new(w.broadcastable(x.shape), x.dtype, "quarters")
    high = w.new(w.broadcastable(x.shape), x.dtype, "eighths")  # nowhere equal
    shape = broadcast(x.shape, low.shape, high.shape)
    if w.chance(0.3):
        shape, high = broadcast(x.shape, low.shape), None
    elif w.chance(0.2):
        shape, low = broadcast(x.shape, high.shape), None
    return [x, low, high], [(x.dtype, shape)]


@operation("maximum", "minimum", "atan2")
def _(w):
    a = w.any()
    b = w.partner(a, numbers=False)
    return [a, b], [(promoted(a, b), broadcast(a.shape, b.shape))]


@operation("floor_divide", "fmod", "remainder")
def _(w):
    a = w.any()
    b = w.partner(a)
    return [a, b], [(promoted(a, b), broadcast(a.shape, b.shape) if isinstance(b, Known) else a.shape)]


@operation("div")
def _(w):
    a = w.any()
    b = w.partner(a)
    rounding = w.pick('""', '"trunc"', '"floor"')
    dtype = promoted(a, b)
    return [a, b, rounding], [(as_float(dtype) if rounding == '""' else dtype,
                               broadcast(a.shape, b.shape) if isinstance(b, Known) else a.shape)]


@operation("lerp")
def _(w):
    a = w.floating()
    b = w.new(w.broadcastable(a.shape), a.dtype)
    weight = w.pick(0.5, 0.25, 2.0) if w.chance(0.6) else w.new(w.broadcastable(a.shape), a.dtype)
    shapes = [x.shape for x in (a, b, weight) if isinstance(x, Known)]
    return [a, b, weight], [(a.dtype, broadcast(*shapes))]


# ---- In place -----------------------------------------------------------------------------------------------


@operation("add_", "sub_", "mul_", "+=", "-=", "*=", "div_", "/=", weight=3)
def _(w):
    x = w.target()
    y = w.partner(x)
    if isinstance(y, Known) and broadcast(x.shape, y.shape) != x.shape and w.chance(0.8):
        y = w.number()
    return [x, y], [(x.dtype, x.shape)]


@operation("zero_", weight=1.5)
def _(w):
    x = w.target()
    return [x], [(x.dtype, x.shape)]


@operation("fill_", weight=1.5)
def _(w):
    x = w.target()
    return [x, w.fitting(x.dtype)], [(x.dtype, x.shape)]


@operation("copy_", weight=1.5)
def _(w):
    x = w.target()
    shape = [1 if w.chance(0.2) else n for n in x.shape]
    return [x, w.any(shape=shape)], [(x.dtype, x.shape)]


@operation("clamp_", weight=1.5)
def _(w):
    x = w.target()
    return [x] + w.pick([-1, 1], [None, 2], [0, None], [-0.5, 1.5]), [(x.dtype, x.shape)]


@operation("masked_fill_", weight=1.5)
def _(w):
    x = w.target()
    return [x, mask_for(w, x), w.fitting(x.dtype)], [(x.dtype, x.shape)]


@operation("[]=", weight=1.5)
def _(w):
    x = w.target()
    if not x.rank or not x.numel:
        return None
    y = w.number() if w.chance(0.5) else w.any(shape=[1 if w.chance(0.2) else n for n in x.shape[1:]])
    return [x, w.random.randrange(-x.shape[0], x.shape[0]), y], [(x.dtype, x.shape)]


@operation("[]=.tensor", weight=1.5)
def _(w):
    x = w.target()
    if not x.rank or not x.numel:
        return None
    index, shape = rows_of(w, x)
    if index.dtype == "int64":  # two values for one row: PyTorch promises neither
        n = x.shape[0]
        count = min(index.numel, n)
        index = w.new((count,), "int64", values=[i - n * w.pick(0, 1) for i in w.random.sample(range(n), count)])
        shape = (count,) + x.shape[1:]
    y = w.fitting(x.dtype) if w.chance(0.5) else w.new([1 if w.chance(0.2) else n for n in shape], x.dtype)
    return [x, index, y], [(x.dtype, x.shape)]


# ---- Reduce -------------------------------------------------------------------------------------------------


def reduced(shape, axes, keepdim):
    axes = {a % len(shape) for a in axes} if shape else set()
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdim or i not in axes)


def summed(dtype):
    return dtype if dtype in FLOATS else "int64"


@operation("sum", "prod")
def _(w):
    x = w.any()
    return [x], [(summed(x.dtype), ())]


@operation("sum.dtype", "prod.dtype", "mean.dtype")
def _(w):
    x, dtype = w.any(), w.pick("float32", "float64", "float64", "int64")
    return [x, dtype], [(dtype, ())]


@operation("sum.axes")
def _(w):
    x, keepdim = w.any(least=1), w.chance(0.4)
    axes = w.axes(x)
    return [x, axes, keepdim], [(summed(x.dtype), reduced(x.shape, axes, keepdim))]


@operation("mean", "norm_")
def _(w):
    x = w.floating()
    return [x], [(x.dtype, ())]


del OPERATIONS["norm_"]


@operation("mean.axes", "logsumexp")
def _(w):
    x, keepdim = w.floating(least=1), w.chance(0.4)
    axes = w.axes(x)
    return [x, axes, keepdim], [(x.dtype, reduced(x.shape, axes, keepdim))]


@operation("prod.axis", "all.axis", "any.axis")
def _(w):
    return None


def one_axis(result):
    def draw(w):
        x, keepdim = w.any(least=1), w.chance(0.4)
        axis = w.axis(x)
        return [x, axis, keepdim], [(result(x.dtype), reduced(x.shape, [axis], keepdim))]
    return draw


OPERATIONS["prod.axis"] = (one_axis(summed), 1)
OPERATIONS["all.axis"] = OPERATIONS["any.axis"] = (one_axis(lambda dtype: "bool"), 1)


@operation("max", "min")
def _(w):
    x = w.any(full=True)
    return [x], [(x.dtype, ())]


@operation("max.axis", "min.axis")
def _(w):
    x, keepdim = w.any(full=True), w.chance(0.4)
    axis = w.axis(x)
    shape = reduced(x.shape, [axis], keepdim)
    return [x, axis, keepdim], [(x.dtype, shape), ("int64", shape)]


@operation("amax", "amin")
def _(w):
    x, keepdim = w.any(full=True, least=1), w.chance(0.4)
    axes = w.axes(x)
    return [x, axes, keepdim], [(x.dtype, reduced(x.shape, axes, keepdim))]


@operation("argmax", "argmin")
def _(w):
    return [w.any(full=True)], [("int64", ())]


@operation("argmax.axis", "argmin.axis")
def _(w):
    x, keepdim = w.any(full=True), w.chance(0.4)
    axis = w.axis(x)
    return [x, axis, keepdim], [("int64", reduced(x.shape, [axis], keepdim))]


@operation("var", "std")
def _(w):
    x = w.floating()
    return [x, w.pick(0.0, 1.0, 2.0)], [(x.dtype, ())]


@operation("var.axes", "std.axes")
def _(w):
    x, keepdim = w.floating(least=1), w.chance(0.4)
    axes = w.axes(x)
    return [x, axes, w.pick(0.0, 1.0), keepdim], [(x.dtype, reduced(x.shape, axes, keepdim))]


@operation("norm")
def _(w):
    x = w.floating()
    return [x, w.pick(2, 1, 3, 0.5, 0, math.inf, -math.inf)], [(x.dtype, ())]


@operation("norm.axes")
def _(w):
    x, keepdim = w.floating(least=1, full=True), w.chance(0.4)
    axes = w.axes(x)
    return [x, w.pick(2, 2, 1, 3, 0, math.inf, -math.inf), axes, keepdim], \
        [(x.dtype, reduced(x.shape, axes, keepdim))]


@operation("norm.dtype")
def _(w):
    x, keepdim = w.any(least=1, full=True), w.chance(0.4)
    axes, dtype = w.axes(x), w.pick(*FLOATS)
    return [x, w.pick(2, 2, 1, 3, 0, math.inf), axes, keepdim, dtype], [(dtype, reduced(x.shape, axes, keepdim))]


@operation("norm.word")
def _(w):
    x = w.floating()
    return [x, '"fro"'], [(x.dtype, ())]


@operation("all", "any")
def _(w):
    return [w.any()], [("bool", ())]


@operation("count_nonzero")
def _(w):
    return [w.any()], [("int64", ())]


@operation("count_nonzero.axes")
def _(w):
    x = w.any(least=1)
    axes = w.axes(x)
    return [x, axes], [("int64", reduced(x.shape, axes, False))]


@operation("cumsum", "cumprod")
def _(w):
    x = w.any()
    return [x, w.axis(x)], [(summed(x.dtype), x.shape)]


@operation("cumsum.dtype", "cumprod.dtype")
def _(w):
    x, dtype = w.any(), w.pick("float32", "float64", "float64", "int64")
    return [x, w.axis(x), dtype], [(dtype, x.shape)]


@operation("sort")
def _(w):
    x = w.any()
    return [x, w.axis(x), w.chance(0.5)], [(x.dtype, x.shape), ("int64", x.shape)]


@operation("argsort")
def _(w):
    x = w.any()
    return [x, w.axis(x), w.chance(0.5)], [("int64", x.shape)]


@operation("topk")
def _(w):
    shape = w.shape(w.random.randint(1, 3))
    n = math.prod(shape)
    x = w.new(shape, w.pick(*FLOATS), values=[v / 4 for v in w.random.sample(range(-n, n), n)])
    axis = w.axis(x)
    k = w.random.randint(0, shape[axis])
    shape = replaced(shape, axis, k)
    return [x, k, axis, w.chance(0.5)], [(x.dtype, shape), ("int64", shape)]


@operation("softmax", "log_softmax")
def _(w):
    x = w.floating()
    return [x, w.axis(x)], [(x.dtype, x.shape)]


# ---- Linear algebra -----------------------------------------------------------------------------------------


@operation("matmul", weight=3)
def _(w):
    a = w.floating(least=1) if w.chance(0.9) else w.any(least=1)
    k = a.shape[-1]
    form = w.pick("vector", "matrix", "batch") if a.rank > 1 else w.pick("vector", "matrix", "batch")
    lead = w.broadcastable(a.shape[:-2]) if form == "batch" and a.rank > 2 else (2,) if form == "batch" else ()
    shape = (k,) if form == "vector" else lead + (k, w.size())
    b = w.new(shape, a.dtype)
    y = broadcast(a.shape[:-2], shape[:-2]) if a.rank > 2 or len(shape) > 2 else ()
    y += a.shape[-2:-1] + (() if form == "vector" else shape[-1:])
    return [a, b], [(a.dtype, y)]


@operation("mm")
def _(w):
    a = w.floating(rank=2)
    b = w.new((a.shape[1], w.size()), a.dtype)
    return [a, b], [(a.dtype, (a.shape[0], b.shape[1]))]


@operation("bmm")
def _(w):
    a = w.floating(rank=3)
    b = w.new((a.shape[0], a.shape[2], w.size()), a.dtype)
    return [a, b], [(a.dtype, (a.shape[0], a.shape[1], b.shape[2]))]


@operation("mv")
def _(w):
    a = w.floating(rank=2)
    return [a, w.new(a.shape[1:], a.dtype)], [(a.dtype, a.shape[:1])]


@operation("dot")
def _(w):
    a = w.floating(rank=1)
    return [a, w.any(dtypes=[a.dtype], shape=a.shape)], [(a.dtype, ())]


@operation("outer")
def _(w):
    a, b = w.any(rank=1), w.any(rank=1)
    return [a, b], [(promoted(a, b), a.shape + b.shape)]


@operation("addmm")
def _(w):
    a = w.floating(rank=2)
    b = w.new((a.shape[1], w.random.randint(1, 4)), a.dtype)
    y = (a.shape[0], b.shape[1])
    x = w.new(w.pick(y, y[1:], (1, y[1]), (y[0], 1)), a.dtype)
    return [x, a, b, w.pick(1.0, 0.5, 0.0), w.pick(1.0, -2.0)], [(a.dtype, y)]


@operation("einsum", weight=2)
def _(w):
    i, j, k = (w.random.randint(1, 3) for _ in range(3))
    dtype = w.pick(*FLOATS)
    sizes = {"i": i, "j": j, "k": k, "b": 2}
    equation = w.pick("ij,jk->ik", "ij->ji", "ij->", "ij->i", "i,j->ij", "bij,bjk->bik", "ij,ij->", "ij",
                      "ij,j", "i,i->", "ii->i", "ii", "...ij->...ji", "...i,...i->...", "ij,ik,i->jk", "ji,kj->ki")
    terms, _, wanted = equation.partition("->")
    operands = []
    for term in terms.split(","):
        shape = ([2] if "..." in term else []) + [sizes[c] for c in term.replace("...", "")]
        operands.append(w.new(shape, dtype))
    if "->" not in equation:
        letters = terms.replace(",", "")
        wanted = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    shape = ([2] if "..." in wanted else []) + [sizes[c] for c in wanted.replace("...", "")]
    return ['"%s"' % equation, operands], [(dtype, shape)]


# ---- Functional ---------------------------------------------------------------------------------------------


@operation("linear")
def _(w):
    x = w.floating(least=1)
    n = w.random.randint(1, 4)
    return [x, w.new((n, x.shape[-1]), x.dtype), w.pick(None, w.new((n,), x.dtype))], \
        [(x.dtype, x.shape[:-1] + (n,))]


def convolution(axes, same=False):
    def draw(w):
        r = w.random
        groups, dtype = w.pick(1, 1, 2), w.pick(*FLOATS)
        stride, padding, dilation = r.randint(1, 2), r.randint(0, 2), r.randint(1, 2)
        kernel = [r.randint(1, 3) for _ in range(axes)]
        size = [r.randint(dilation * (k - 1) + 1, dilation * (k - 1) + 4 - axes) if axes < 3 else k for k in kernel]
        inputs, outputs, batch = groups * r.randint(1, 2), groups * r.randint(1, 2), r.randint(1, 2)
        lead = [] if w.chance(0.1) else [batch]
        x = w.new(lead + [inputs] + size, dtype)
        weight = w.new([outputs, inputs // groups] + kernel, dtype)
        bias = w.new((outputs,), dtype) if w.chance(0.5) else None
        if same:
            return [x, weight, bias, dilation, groups], [(dtype, lead + [outputs] + size)]
        y = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, kernel)]
        return [x, weight, bias, stride, padding, dilation, groups], [(dtype, lead + [outputs] + y)]
    return draw


OPERATIONS["conv1d"] = (convolution(1), 1)
OPERATIONS["conv2d"] = (convolution(2), 1)
OPERATIONS["conv1d.same"] = (convolution(1, True), 1)
OPERATIONS["conv2d.same"] = (convolution(2, True), 1)


def image(w):
    lead = [w.random.randint(1, 2) for _ in range(w.pick(1, 2, 2))]
    return w.new(lead + [w.random.randint(2, 5), w.random.randint(2, 5)], w.pick(*FLOATS))


def pool(w):
    kernel = w.random.randint(1, 3)
    return kernel, w.pick(None, 1, 2, 3), w.random.randint(0, kernel // 2), w.chance(0.4)


def pooled(x, kernel, stride, padding, ceil_mode, dilation=1):
    """The shape, which PyTorch's documentation describes."""
    stride, shape = stride or kernel, list(x.shape)
    for i in (-2, -1):
        room = x.shape[i] + 2 * padding - dilation * (kernel - 1) - 1
        n = -(-room // stride) if ceil_mode else room // stride
        if ceil_mode and n * stride >= x.shape[i] + padding:
            n -= 1
        shape[i] = max(n + 1, 0)
    return tuple(shape)


@operation("max_pool2d")
def _(w):
    x = image(w)
    (kernel, stride, padding, ceil_mode), dilation = pool(w), w.pick(1, 1, 2)
    return [x, kernel, stride, padding, dilation, ceil_mode], \
        [(x.dtype, pooled(x, kernel, stride, padding, ceil_mode, dilation))]


@operation("max_pool2d.indices")
def _(w):
    x = image(w)
    kernel, stride, padding, ceil_mode = pool(w)
    shape = pooled(x, kernel, stride, padding, ceil_mode)
    return [x, kernel, stride, padding, ceil_mode], [(x.dtype, shape), ("int64", shape)]


@operation("avg_pool2d")
def _(w):
    x = image(w)
    kernel, stride, padding, ceil_mode = pool(w)
    divisor = w.pick(-2, 1, 3, 5) if w.chance(0.3) else None
    return [x, kernel, stride, padding, ceil_mode, w.chance(0.5), divisor], \
        [(x.dtype, pooled(x, kernel, stride, padding, ceil_mode))]


@operation("adaptive_avg_pool2d")
def _(w):
    x = image(w)
    h, v = w.random.randint(1, 4), w.random.randint(1, 4)
    return [x, h, v], [(x.dtype, x.shape[:-2] + (h, v))]


def weight_and_bias(w, shape, dtype):
    return [w.new(shape, dtype, "quarters") if w.chance(0.6) else None for _ in range(2)]


@operation("batch_norm")
def _(w):
    shape = w.shape(w.random.randint(2, 4))
    while math.prod(shape) < 2 * shape[1] or not shape[1]:
        shape = w.shape(w.random.randint(2, 4))
    x = w.new(shape, w.pick(*FLOATS), w.pick("quarters", "smooth"))
    mean = w.new((shape[1],), x.dtype, "quarters", grad=False)
    var = w.new((shape[1],), x.dtype, "positive", grad=False)
    return [x, mean, var] + weight_and_bias(w, (shape[1],), x.dtype) + [w.chance(0.5), w.pick(0.1, 0.5)], \
        [(x.dtype, shape)]


@operation("layer_norm")
def _(w):
    x = w.floating(least=1, full=True)
    shape = x.shape[w.random.randrange(x.rank):]
    if math.prod(shape) == 1:  # nothing but a rounding error, times 300
        x = w.new(x.shape + (3,), x.dtype)
        shape = x.shape[-1:]
    return [x, shape] + weight_and_bias(w, shape, x.dtype), [(x.dtype, x.shape)]


@operation("group_norm")
def _(w):
    groups, each = w.random.randint(1, 2), w.random.randint(1, 2)
    shape = (w.random.randint(1, 2), groups * each) + w.shape(w.random.randint(1, 2))
    if each * math.prod(shape[2:]) == 1:  # nothing but a rounding error, times 300
        shape += (3,)
    x = w.new(shape, w.pick(*FLOATS), w.pick("quarters", "smooth"))
    return [x, groups] + weight_and_bias(w, (shape[1],), x.dtype), [(x.dtype, shape)]


@operation("dropout")
def _(w):  # what needs no chance: nothing dropped, everything dropped, or not training
    x = w.floating()
    return [x] + w.pick([0.0, True], [0.5, False], [1.0, True]), [(x.dtype, x.shape)]


@operation("embedding")
def _(w):
    n, d = w.random.randint(1, 4), w.random.randint(1, 3)
    weight = w.new((n, d), w.pick(*FLOATS))
    index = w.index(w.shape(w.random.randint(0, 2)), n)
    padding = w.random.randrange(-n, n) if w.chance(0.4) else None
    return [index, weight, padding], [(weight.dtype, index.shape + (d,))]


@operation("one_hot")
def _(w):
    index = w.index(w.shape(w.random.randint(0, 2)), 4)
    n = w.random.randint(4, 5)
    return [index, n], [("int64", index.shape + (n,))]


@operation("scaled_dot_product_attention")
def _(w):
    lead = w.pick((), (2,), (1, 2))
    length, source, e, v = (w.random.randint(1, 3) for _ in range(4))
    dtype = w.pick(*FLOATS)
    causal = w.chance(0.3)
    mask = None
    if not causal and w.chance(0.5):
        mask = w.new((length, source), w.pick("bool", dtype), "quarters")
    return [w.new(lead + (length, e), dtype), w.new(lead + (source, e), dtype), w.new(lead + (source, v), dtype),
            mask, causal], [(dtype, lead + (length, v))]


def losses(shape, dtype, reduction):
    return [(dtype, shape if reduction == '"none"' else ())]


def reduction(w):
    return w.pick('"mean"', '"sum"', '"none"')


@operation("mse_loss", "l1_loss")
def _(w):
    x, how = w.floating(), reduction(w)
    y = w.new(x.shape if w.chance(0.8) else w.broadcastable(x.shape), x.dtype)
    return [x, y, how], losses(broadcast(x.shape, y.shape), x.dtype, how)


@operation("huber_loss", "smooth_l1_loss")
def _(w):
    x, how = w.floating(), reduction(w)
    return [x, w.new(x.shape, x.dtype), how, w.pick(1.0, 0.5)], losses(x.shape, x.dtype, how)


def classes(w):
    """Scores, the class of each row, and a weight for each class or None."""
    n, c = w.random.randint(1, 4), w.random.randint(1, 4)
    lead, rest = w.pick((), (n,), (n,)), ()
    if lead and w.chance(0.3):
        rest = (w.random.randint(1, 2),)
    x = w.new(lead + (c,) + rest, w.pick(*FLOATS), w.pick("quarters", "smooth"))
    target = w.index(lead + rest, c)
    weight = w.new((c,), x.dtype, "positive", grad=False) if w.chance(0.4) else None
    return x, target, weight, w.pick(-100, 0, 1), lead + rest


@operation("nll_loss")
def _(w):
    x, target, weight, ignored, shape = classes(w)
    how = reduction(w)
    return [x, target, weight, ignored, how], losses(shape, x.dtype, how)


@operation("cross_entropy", weight=1.5)
def _(w):
    x, target, weight, ignored, shape = classes(w)
    if w.chance(0.3):
        target, ignored = w.new(x.shape, x.dtype, "probability"), -100
    how = reduction(w)
    return [x, target, weight, ignored, how, w.pick(0.0, 0.0, 0.25)], losses(shape, x.dtype, how)


@operation("binary_cross_entropy")
def _(w):
    x, how = w.new(w.shape(), w.pick(*FLOATS), "probability"), reduction(w)
    weight = w.new(x.shape[-1:], x.dtype, "positive", grad=False) if w.chance(0.3) else None
    return [x, w.new(x.shape, x.dtype, "probability", grad=False), how, weight], losses(x.shape, x.dtype, how)


@operation("binary_cross_entropy_with_logits")
def _(w):
    x, how = w.floating(), reduction(w)
    target = w.new(x.shape, x.dtype, "probability", grad=False)
    weights = [w.new(x.shape[-1:], x.dtype, "positive", grad=False) if w.chance(0.3) else None for _ in range(2)]
    return [x, target, how] + weights, losses(x.shape, x.dtype, how)


@operation("kl_div")
def _(w):
    x, how = w.floating(), w.pick('"mean"', '"sum"', '"none"', '"batchmean"')
    logs = w.chance(0.4)
    target = w.new(x.shape, x.dtype, "unit" if logs else "probability")
    return [x, target, how, logs], losses(x.shape, x.dtype, how)


# ---- Whole programs -----------------------------------------------------------------------------------------

AUTOGRAD = ("backward", "backward.gradient", "grad", "grad.of", "zero_grad", "set_grad", "no_grad")


def program(seed, damage=0.05):
    """The lines of one program, and what was drawn: (operation, dtype of its first tensor, ran by name)."""
    w = Writer(seed)
    names = list(OPERATIONS)
    weights = [OPERATIONS[n][1] for n in names]
    for _ in range(w.random.randint(3, 7)):
        if w.chance(0.03):
            w.no_grad = not w.no_grad
            w.line("no_grad", w.no_grad)
        w.write(w.random.choices(names, weights)[0], damage)
    if w.no_grad:
        w.no_grad = False
        w.line("no_grad", False)
    ends = w.random.random()
    if ends < 0.08:
        fits = [x for x in w.tensors if x.grad and not x.leaf]
        if fits:
            x = w.random.choice(fits)
            w.line("backward.gradient", x, w.new(x.shape, x.dtype, "quarters", grad=False))
        return w.lines, w.drawn
    loss = w.loss()
    if loss is None:
        return w.lines, w.drawn
    leaves = [x for x in w.tensors if x.leaf and x.grad]
    if ends < 0.2 and leaves:  # a derivative, and a derivative of it
        inputs = w.random.sample(leaves, w.random.randint(1, min(2, len(leaves))))
        create, results = w.chance(0.6), [Known(w.name(), x.dtype, x.shape, True) for x in inputs]
        w.lines.append("%s = grad %s %s %s %s" % (" ".join(map(str, results)), text([loss]), text(inputs),
                                                  text(create), text(w.chance(0.5))))
        w.drawn.append(("grad", loss.dtype, True))
        if create:
            w.tensors += results
            again = w.loss()
            if again is not None:
                w.line("backward", again, False, False)
    else:
        create = w.chance(0.06)
        w.line("backward", loss, w.chance(0.15), create)
        if w.chance(0.1):
            w.line("backward", loss, False, False)
        if leaves and w.chance(0.2):
            x = w.random.choice(leaves)
            if w.chance(0.3):
                w.line("set_grad", x, w.new(x.shape, x.dtype, "quarters", grad=False))
            elif w.chance(0.6):
                w.emit("grad.of", [x], x.dtype, x.shape)
            else:
                w.line("zero_grad", x)
    return w.lines, w.drawn
