"""Where minitensor and PyTorch 1.13 differ on purpose, with a reason each.

An entry is a reason and a function of what was found: `op`, `words` and `line` of the statement (for a value:
of the one that made it), `ours` and `theirs` (what the two printed), `kind` ("refused here", "refused there",
"result", "value", "gradient"), `types`, `shapes` and `grads` (the dtype and shape of each name, and which names
backward passes see), `program`, all its lines, and `refused`, those that PyTorch refused.
"""

import math
import re


def says(*texts):
    """PyTorch refuses with one of these words."""
    return lambda d: d.kind == "refused there" and any(text in d.theirs for text in texts)


def refuses(*texts):
    """minitensor refuses with one of these words."""
    return lambda d: d.kind == "refused here" and any(text in d.ours for text in texts)


def uses(d, *operations):
    return any(re.search(r"(^|= )%s( |$)" % re.escape(o), line) for line in d.program for o in operations)


def only_recorded(d):
    plain = [text.replace("grad", "") for text in (d.ours, d.theirs)]
    return d.kind == "result" and d.op in ("grad", "grad.of") and plain[0] == plain[1]


def without_layout(text):
    return re.sub(r"at\d+\[[\d,]*\]|leaf|grad", "", text)


def used_strides(text):
    """The text with 0 for the stride of each axis that has one element."""
    def masked(match):
        sizes, strides = match[1].split(","), match[3].split(",")
        return "[%s]%s[%s]" % (match[1], match[2], ",".join("0" if n == "1" else s for n, s in zip(sizes, strides)))
    return re.sub(r"\[([\d,]*)\]((?:leaf|grad)?at\d+)\[([\d,]*)\]", masked, text)


def without_signs(text):
    return ["%.5g" % (float(v) + 0.0) for v in text.replace("-inf", "inf").split()[2:]]


def of_order_0(d):
    return any(re.search(r"= norm(\.axes|\.dtype)? \w+ 0( |$)", line) for line in d.program)


VIEWS = set("""operator[] select slice narrow at view reshape flatten unflatten squeeze squeeze.axis unsqueeze transpose
t permute movedim expand expand_as broadcast_to meshgrid split split.sizes chunk unbind diagonal unfold detach
contiguous einsum requires_grad_ named retain_grad cpu to dropout""".split())
IN_PLACE = r"(\w+_|[-+*/]=|\[\]=|\[\]=\.tensor)"


def is_loss(d):
    return d.op.endswith("_loss") or d.op.startswith("binary_cross_entropy")


def few_digits(d):
    """Whether the two agree to a thousandth of their largest number."""
    ours, theirs = (list(map(float, text.split()[2:])) for text in (d.ours, d.theirs))
    most = 1e-3 * max((abs(b) for b in theirs if math.isfinite(b)), default=0.0)
    return all(a == b or a != a and b != b or abs(a - b) <= most for a, b in zip(ours, theirs))


def has_two_zeros(d):
    """Whether one of the tensors that the program begins with has several zeros."""
    return any(len(re.findall(r"[\[,]-?0\.0(?=[,\]])", line)) > 1 for line in d.program)


def twice(d):
    """Whether a derivative is recorded, to be differentiated again."""
    return re.search(r"= grad \S+ \S+ true", "\n".join(d.program))


def only_nan_there(d):
    """Whether the two agree in all that is not NaN in PyTorch."""
    ours, theirs = (text.split()[2:] for text in (d.ours, d.theirs))
    return d.ours != "nothing" and all("%.5g" % (float(a) + 0.0) == "%.5g" % (float(b) + 0.0)
                                       for a, b in zip(ours, theirs) if b != "nan")


def under_no_grad(d):
    """The lines that ran under no_grad."""
    lines, off = [], False
    for line in d.program:
        if line.startswith("no_grad"):
            off = line == "no_grad true"
        elif off:
            lines.append(line)
    return lines


def is_write(line):
    return re.match(r"\w+ = %s " % IN_PLACE, line)


def written(d):
    return any(map(is_write, d.program))


def written_under_no_grad(d):
    return any(map(is_write, under_no_grad(d)))


def viewed_under_no_grad(d):
    return any(line.rpartition(" = ")[2].split()[0] in VIEWS for line in under_no_grad(d))


def made_by(d, name):
    """The operation that has made this name, or what it is a second name of."""
    for line in d.program:
        names, _, right = line.rpartition(" = ")
        if name in names.split():
            words = right.split()
            return made_by(d, words[1]) if re.fullmatch(IN_PLACE, words[0]) else words[0]
    return ""


def reads_what_it_writes(d):
    """Whether an operation in place reads what may be a part of what it writes."""
    root = {}
    for line in d.program:
        names, _, right = line.rpartition(" = ")
        words = right.replace("[", " ").replace(",", " ").replace("]", " ").split()
        known = [root[w] for w in words[1:] if w in root]
        writes = re.fullmatch(IN_PLACE, right.split()[0])
        if writes and len(known) > 1 and known[0] in known[1:]:
            return True
        for name in names.split():
            root[name] = known[0] if known and (words[0] in VIEWS or writes) else name
    return False


MAKE_INTEGERS = ("to", "sum.dtype", "prod.dtype", "cumsum.dtype", "cumprod.dtype", "copy_", "[]=", "[]=.tensor")

SORTING = ("sort", "argsort", "argmax", "argmin", "argmax.axis", "argmin.axis", "max.axis", "min.axis")

KNOWN = [
    # What the table "Conventions where libraries differ" settles, and what the header refuses to guess.
    ("a number that would lose its fraction, or whose kind is larger, is not written into integers or bools",
     refuses("would be lost in", "can't be written into")),
    ("a bool times a number is a number, so that it is not added to bools",
     lambda d: d.op == "index_add" and refuses("source is placed into bool")(d)),
    ("a gradient that depends on nothing is plain data here; PyTorch records the zeros of its derivative, or not",
     lambda d: only_recorded(d) or d.kind == "gradient" and d.ours == "nothing" and
     re.search(r"= grad \S+ \S+ true", "\n".join(d.program)) and not any(map(float, d.theirs.split()[2:]))),
    ("bools and integers have no derivative, so that a write leaves them plain data; PyTorch's ask for a gradient",
     lambda d: d.kind == "result" and re.match(r"ok (bool|int64)", d.ours) and d.ours == d.theirs.replace("grad", "")),
    ("a view that was made before its base asked for a gradient has no history; PyTorch says that it wants a gradient",
     lambda d: d.kind == "result" and d.ours == re.sub("grad|leaf", "", d.theirs) and uses(d, "requires_grad_")),
    ("the gradient of hardtanh at NaN is 1; PyTorch gives 0 or 1, by the place of the element",
     lambda d: d.kind in ("gradient", "value") and uses(d, "hardtanh") and "nan" in d.answer),
    ("of several NaN in a window the first is the largest, as in max; PyTorch's max_pool2d takes the last",
     lambda d: d.kind in ("gradient", "value") and uses(d, "max_pool2d", "max_pool2d.indices") and
     any("nan" in line for line in d.program + [d.answer])),
    ("where two or more factors are 0 and another is NaN, PyTorch's prod says 0; the product of the others is NaN",
     lambda d: d.kind in ("gradient", "value") and uses(d, "prod", "prod.axis", "prod.dtype") and "nan" in d.ours),
    ("of equal elements topk takes the first ones; PyTorch any",
     lambda d: d.kind == "value" and d.op == "topk" and " int64" in d.ours),
    ("amax and amin of a row with NaN give the gradient to the NaN, as max does; PyTorch divides 0 by 0",
     lambda d: d.kind in ("gradient", "value") and uses(d, "amax", "amin") and "nan" in d.theirs),
    ("a clamp whose minimum is above its maximum keeps a NaN, and so gives its gradient to the NaN; PyTorch's to the "
     "maximum as well",
     lambda d: d.kind in ("gradient", "value") and uses(d, "clamp.tensors") and "nan" in d.answer),
    ("a 0-d tensor has no axis along which one could index",
     refuses("a 0-d tensor has no axis to index", "a 0-d tensor has no axis to unfold",
             "gather: the index has shape [], ", "and the tensor [] at")),
    ("tril and triu take matrices, also empty ones",
     lambda d: refuses("it takes at least two axes")(d) and 0 in d.shapes.get(d.words[1], [])),
    ("one number of another dtype may be written by its index, as by x[0] = y",
     lambda d: d.op == "[]=.tensor" and says("Index put requires the source and destination dtypes match")(d)),
    ("an einsum that changes nothing is its operand, and its result lies as the last product left it",
     lambda d: uses(d, "einsum") and (d.kind == "result" and without_layout(d.ours) == without_layout(d.theirs) or
                                      d.op == "view" and refuses("without copying")(d))),
    ("a bool is compared with 0 or 1 only, because 1 < x < 2 means something else", refuses("a bool is compared")),
    ("NaN and what is out of range become integers by a rule here, and anything in PyTorch",
     lambda d: d.kind == "value" and
     ("9223372036854775" in d.ours + d.theirs or uses(d, *MAKE_INTEGERS) and
      re.search("inf|nan", d.answer + "".join(d.program)))),
    ("with beta = 0 addmm does not look at its input, so that there is no gradient",
     lambda d: (d.kind in ("gradient", "result") or refuses("was not used")(d) or says("the same dtype")(d)) and
     re.search(r"= addmm \w+ \w+ \w+ 0.0 ", "\n".join(d.program))),
    ("what makes sense for floats alone takes floats, as mean does", refuses("it takes floats")),
    ("hardtanh makes floats of integers, as the other activations do",
     lambda d: d.kind == "result" and d.op == "hardtanh" and " int64" in d.theirs),
    ("a loss of two dtypes follows the rules of promotion; PyTorch's has the first one's, or counts 0-d ones in full",
     lambda d: is_loss(d) and d.kind == "result" and "float64" in d.ours + d.theirs),
    ("PyTorch's losses want one dtype",
     lambda d: is_loss(d) and says("can't be cast to the desired output type", "Found dtype")(d)),
    ("what dropout drops is 0, also where it was NaN; PyTorch multiplies by 0, which gives -0 as well",
     lambda d: d.kind in ("value", "gradient", "result") and re.search(r"dropout \w+ 1.0 true", "\n".join(d.program))),
    ("parts of a split may be written into; PyTorch refuses that where gradients are recorded",
     lambda d: d.theirs.endswith(" refused") or says("is the output of a function that returns multiple views")(d)),
    ("the stride of an axis with one element is never used, and may differ",
     lambda d: d.kind == "result" and used_strides(d.ours) == used_strides(d.theirs)),
    ("attention takes matrices, and a mask of bools or floats, as in 2.x; what stands for it here takes more",
     refuses("scaled_dot_product_attention: the shapes", "scaled_dot_product_attention: a mask is boolean")),
    ("a view that was made under no_grad takes its history from its base when that is written; for this comparison "
     "PyTorch's was cut off",
     lambda d: viewed_under_no_grad(d) and written(d) and
     (d.kind == "gradient" or d.kind == "result" and d.ours.replace("grad", "") == d.theirs.replace("grad", ""))),
    ("the gradient of logsumexp where all is -inf is 0",
     lambda d: d.kind in ("gradient", "value") and uses(d, "logsumexp") and "nan" in d.theirs and only_nan_there(d)),
    ("where all scores are -inf, attention gives 0",
     lambda d: d.kind in ("value", "gradient") and uses(d, "scaled_dot_product_attention") and "nan" in d.theirs),
    ("a second derivative at a pole, such as that of 1 / x at 0, is inf or NaN by the order of its factors",
     lambda d: d.kind in ("gradient", "value") and twice(d) and "nan" in d.ours + d.theirs),
    ("the second derivative of elu at 0 is that of its left side",
     lambda d: d.kind == "gradient" and uses(d, "elu") and twice(d) and re.search(r" -?0( |$)", d.answer, re.M)),
    ("the gradient of elu at NaN is 1 here", lambda d: d.kind in ("gradient", "value") and uses(d, "elu") and
     "nan" in d.theirs),
    ("cumprod's gradient of a line with NaN or inf", lambda d: d.kind in ("gradient", "value") and
     uses(d, "cumprod", "cumprod.dtype") and "nan" in d.ours + d.theirs),
    ("the sign of a zero does not count, nor that of the infinity that a division makes of it",
     lambda d: d.kind in ("gradient", "value") and without_signs(d.ours) == without_signs(d.theirs)),
    ("nor whether atan2 of such a zero is 0, pi or minus pi",
     lambda d: d.kind == "value" and d.op == "atan2" and
     all("%.5g" % a == "%.5g" % b or {round(abs(a), 5), round(abs(b), 5)} <= {0.0, 3.14159}
         for a, b in zip(map(float, d.ours.split()[2:]), map(float, d.theirs.split()[2:])))),
    ("a view of a leaf is not written, whether it was made under no_grad or not",
     lambda d: refuses("a view of a leaf")(d) and uses(d, "no_grad")),
    ("what is written under no_grad is not recorded: a gradient passes through a view as if nothing was written",
     lambda d: d.kind in ("result", "gradient", "value") and written_under_no_grad(d)),
    ("padding is multiplied as any number: 0 * inf is NaN; PyTorch does so or not, by the algorithm that it picks",
     lambda d: d.kind in ("value", "gradient") and "nan" in d.ours and
     uses(d, "conv1d", "conv2d", "conv1d.same", "conv2d.same")),
    ("~ & | ^ take bools", refuses("it takes bools", "they take bools")),
    ("writing into an expanded view is refused before anything is written", refuses("are one place in memory")),
    ("a number divided by a tensor keeps the tensor, so that it may not be overwritten; PyTorch keeps the reciprocal",
     lambda d: refuses("div: the value that its derivative needs (a)")(d) and
     any(re.search(r"= / (-?[\d.]\S*|-?inf|nan) [a-z]\w*$", line) for line in d.program)),
    ("the second derivative of huber_loss and smooth_l1_loss exactly on the edge is that of the inside",
     lambda d: d.kind in ("gradient", "value") and uses(d, "huber_loss", "smooth_l1_loss") and twice(d)),
    ("an infinite norm", lambda d: d.kind in ("gradient", "value") and "nan" in d.ours + d.theirs and
     uses(d, "norm", "norm.axes", "norm.dtype", "norm.word")),
    ("dropout of nothing is the tensor itself", lambda d: d.kind == "result" and d.op == "dropout" and
     (d.words[2] == "0.0" or d.words[3] == "false")),
    ("an index without elements has to fit as well, and to be int64",
     lambda d: refuses("is larger than the source")(d) or
     refuses("the index is ", "the index has shape", "the index [", "need as many axes as")(d) and
     any(0 in d.shapes.get(w, []) for w in d.words)),
    ("bools are not multiplied as matrices, also where nothing is multiplied",
     refuses("matmul: it takes numbers, not bools")),
    ("plain data may be written through a view, also one that was made under no_grad",
     says("A view was created in no_grad mode")),
    ("a 0-d tensor has no axis to scatter along",
     refuses("need as many axes as []", "and the source [] need as many", "the index [] and the source")),
    ("matmul keeps its operand, which may not be overwritten; PyTorch keeps a copy where it joins axes",
     refuses("matmul: the value that its derivative needs")),
    ("an einsum that changes nothing is its operand, also where that is a leaf; a diagonal is a view of it",
     lambda d: uses(d, "einsum") and (
         refuses("the graph could not tell", "a view of a leaf")(d) or uses(d, "no_grad") and
         (d.kind == "gradient" or d.op == "grad.of" or refuses("has used up this graph")(d)))),
    ("an operation in place reads a part of what it writes as it was before; PyTorch reads what it has just written",
     lambda d: d.kind == "value" and reads_what_it_writes(d)),
    ("linear wants a weight [out, in]", refuses("linear: the input")),
    ("the bias of linear has one number for each output; PyTorch lets it broadcast", refuses("linear: the bias")),
    ("a list has at most 8 numbers, so that pad reaches the last four axes",
     lambda d: d.op == "pad" and refuses("at most 8 dimensions")(d)),
    ("bools are not subtracted", refuses("bools are not subtracted")),
    ("a pool makes at least one element", refuses("has to be positive")),
    ("attention keeps its mask and does not copy it, so that the mask may not be overwritten",
     lambda d: refuses("was overwritten")(d) and uses(d, "scaled_dot_product_attention")),
    ("x *= y keeps a copy of what a derivative needs; PyTorch has overwritten it",
     lambda d: says("modified by an inplace operation")(d) and uses(d, "*=", "mul_", "/=", "div_")),
    ("at({}) is the tensor itself", lambda d: d.kind == "result" and d.op == "at" and d.words[2] == "[]"),
    ("a product wants one dtype, also where nothing is multiplied", refuses("the dtypes differ")),
    ("an operation in place reads a view of what it writes as it was before; PyTorch refuses",
     says("refer to a single memory location")),
    ("a result that PyTorch lays out as its operand was copied for this comparison, so that PyTorch misses the write",
     lambda d: refuses("was overwritten")(d) and
     uses(d, "t", "transpose", "permute", "movedim", "expand", "expand_as", "broadcast_to", "diagonal", "unfold",
          "slice", "select", "einsum")),
    ("the running mean and variance are data, also where they ask for a gradient",
     says("is not differentiable with respect to argument 'running_")),
    # What 1.13 does otherwise than 2.x.
    ("2.x: nothing has no largest element, so there is no norm of order inf",
     refuses("an empty axis has no largest or smallest element")),
    ("2.x: padding may be negative down to a size of 0", says("plus negative padding")),
    ("2.x: where the correction leaves no degree of freedom, the gradient of var is NaN or infinite",
     lambda d: d.kind in ("gradient", "value") and uses(d, "var", "std", "var.axes", "std.axes") and "nan" in d.ours),
    ("2.x: a tensor that retains its gradient goes on to do so when it is written",
     lambda d: d.kind == "gradient" and uses(d, "retain_grad") and written(d)),
    ("2.x: what index_add adds has the shape of what it is added to", refuses("index_add: the source has shape")),
    ("2.x: a mask is boolean", refuses("the condition is")),
    # What PyTorch can't do, or does wrongly.
    ("PyTorch's gradient of atan2 fails for a bool beside a float", says("Negation, the `-` operator, on a bool")),
    ("PyTorch's scatter can't take the gradient of a source that is larger than its index",
     says("ScatterBackward0 returned an invalid gradient")),
    ("PyTorch has no derivative of floor_divide; ours is 0, as that of floor",
     says("derivative for aten::floor_divide is not implemented")),
    ("PyTorch has not written this for the dtype",
     says("not implemented for", "Integral inputs not supported", "Bool inputs not supported")),
    ("PyTorch's group_norm without a weight has no second derivative, and none of its bias alone",
     says("shape '[0]' is invalid for input", "tensor does not have a device")),
    ("PyTorch fails inside of a chain of writes", says("could not compute gradients for some functions")),
    ("PyTorch's normalisations and convolutions want one dtype",
     says("expected scalar type", "mixed dtype", "and bias type")),
    ("PyTorch's gradient of a cumprod in another dtype fails where an element is 0",
     lambda d: uses(d, "cumprod.dtype") and says("masked_scatter: expected self and source")(d)),
    ("PyTorch fails where integers are made of what wants a gradient",
     lambda d: d.op.endswith(".dtype") and says("please report a bug to PyTorch")(d)),
    ("PyTorch fails where a part of a split retains a gradient that never comes",
     lambda d: uses(d, "retain_grad") and says("Expected a proper Tensor but got None")(d)),
    ("PyTorch takes a view of what was written for a leaf, if it was not used in between",
     lambda d: says("a leaf Variable that requires grad")(d) and made_by(d, d.words[1]) in VIEWS),
    ("PyTorch's second derivatives reach what began to ask for a gradient after it was used",
     lambda d: d.kind == "gradient" and d.ours == "nothing" and twice(d) and uses(d, "requires_grad_")),
    ("a view that was made under no_grad is not written where gradients are recorded; PyTorch allows it if it has no "
     "elements, or was cut off for this comparison", refuses("this view was made inside NoGrad")),
    ("PyTorch's roll of nothing does not look at its axes",
     lambda d: refuses("roll: axis")(d) and 0 in d.shapes.get(d.words[1], [])),
    ("PyTorch's float32 normalisation of few numbers has few digits, and so has its gradient",
     lambda d: d.kind in ("value", "gradient") and " float32" in d.ours and
     uses(d, "layer_norm", "group_norm", "batch_norm") and few_digits(d)),
    ("the start of a part of nothing may be -1 in PyTorch",
     lambda d: d.op == "narrow" and refuses("leave the size 0")(d)),
    ("PyTorch's allclose wants one dtype, and its equal_nan wants the first shape to be the larger one",
     lambda d: d.op == "allclose" and says("did not match", "doesn't match the broadcast shape")(d)),
    ("meshgrid only moves numbers, of any dtypes", says("meshgrid expects all tensors to have the same dtype")),
    ("PyTorch's addmm wants one dtype", lambda d: d.op in ("addmm", "linear") and says("must have the same dtype")(d)),
    ("PyTorch does not make an integer of what is too large for one, or NaN",
     lambda d: d.op.endswith(".dtype") and says("without overflow")(d)),
    ("PyTorch's float32 gelu of a negative number has few digits, because 1 + erf cancels; ours has them all",
     lambda d: d.kind in ("value", "gradient") and " float32" in d.ours and uses(d, "gelu") and (
         few_digits(d) or "inf" in d.theirs and uses(d, "/", "/=", "div", "div_", "reciprocal"))),
    ("where PyTorch refused a gradient after a write, for another one's sake, what a later pass is refused was not "
     "asked of it", lambda d: refuses("was overwritten")(d) and any(" = grad " in line for line in d.refused)),
    ("the gradient of a float64 factor of x *= y is computed in float64, also where x is float32",
     lambda d: d.kind in ("value", "gradient") and " float64" in d.ours and uses(d, "*=", "mul_", "/=", "div_") and
     "float32" in d.types.values() and few_digits(d)),
    ("an index made of what is out of range is 0 here, and refused in PyTorch",
     says("index -9223372036854775808 is out")),
    ("the norm of nothing, of a negative order, is 1 / 0; 2.x refuses it",
     lambda d: d.kind in ("value", "gradient") and d.op in ("norm", "norm.axes", "norm.dtype") and "inf" in d.ours and
     0 in d.shapes.get(d.words[1], [])),
    ("PyTorch's std and var of equal numbers miss 0 by a rounding error, which then has a gradient",
     lambda d: d.kind in ("value", "gradient") and uses(d, "std", "var", "std.axes", "var.axes") and
     not any(map(float, d.ours.split()[2:]))),
    ("the remainder of a multiple, missed by a rounding error, is about 0 or about the divisor",
     lambda d: d.kind == "value" and d.op.startswith(("remainder", "fmod")) and
     all(a == b or abs(a - b) <= 1e-9 * abs(b) or min(abs(a), abs(b)) < 1e-9
         for a, b in zip(*(map(float, text.split()[2:]) for text in (d.ours, d.theirs))))),
    ("a view of what was written into is not a leaf, also before it is used",
     lambda d: d.op == "requires_grad_" and refuses("it is not a leaf")(d) and made_by(d, d.words[1]) in VIEWS),
    ("PyTorch fails at zeros that it has not written out", says("ZeroTensors are immutable")),
    ("PyTorch fails where a leaf that asks for no gradient any more is written", says("moved into the graph interior")),
    ("PyTorch's second derivative of a logsumexp of nothing fails", says("can be any value and is ambiguous")),
    ("PyTorch loses the second derivative of a product with two zeros",
     lambda d: d.kind in ("value", "gradient") and twice(d) and uses(d, "prod", "prod.axis", "prod.dtype") and
     has_two_zeros(d)),
    ("PyTorch's gradient of gelu is memory that nobody wrote, where what arrives is laid out otherwise",
     lambda d: d.kind in ("value", "gradient") and " float32" in d.ours and uses(d, "gelu") and
     uses(d, "t", "transpose", "permute", "movedim") and " 0 0" in d.theirs),
    ("PyTorch's nll_loss takes one row of logits for a whole line of classes",
     lambda d: refuses("nll_loss: the shapes")(d) and len(d.shapes.get(d.words[1], [])) == 1),
    ("PyTorch's convolution of one row takes a bias of another dtype, which does not count",
     lambda d: d.kind == "result" and d.op in ("conv1d", "conv2d", "conv1d.same", "conv2d.same") and
     len({d.types.get(word) for word in d.words[1:4]} & {"float32", "float64"}) > 1),
    ("a second derivative of cumprod along an axis of size 1 is 0 here, and nothing in PyTorch",
     lambda d: d.kind == "gradient" and d.theirs == "nothing" and twice(d) and uses(d, "cumprod", "cumprod.dtype") and
     not any(map(float, d.ours.split()[2:]))),
    ("PyTorch may compute equal numbers a little differently, by their place in memory, which then are sorted",
     lambda d: d.kind == "value" and d.op in SORTING and made_by(d, d.words[1]) != "tensor"),
    ("an infinite gradient of a normalisation is infinite or NaN, by the order of its sums",
     lambda d: d.kind == "gradient" and uses(d, "layer_norm", "group_norm", "batch_norm") and "nan" in d.theirs and
     re.search("inf|nan", d.ours)),
    ("the gradient of an exponent whose base is 0 is 0, also where NaN arrives",
     lambda d: d.kind in ("gradient", "value") and uses(d, "pow", "pow.base") and "nan" in d.theirs and
     only_nan_there(d)),
    ("what a normalisation brings to 0 may be a rounding error in PyTorch, which counts as true",
     lambda d: d.kind == "value" and uses(d, "group_norm", "batch_norm", "layer_norm") and
     (" bool" in d.ours or d.op.startswith(("count_nonzero", "sign", "ceil", "floor")))),
    ("PyTorch computes normalisations as x * a + b, which misses 0 by a rounding error: 1 / 0 is then not infinite",
     lambda d: d.kind in ("value", "gradient") and (
         uses(d, "batch_norm") and "inf" in d.ours or uses(d, "group_norm", "layer_norm") and
         uses(d, "/", "/=", "div", "div_", "reciprocal") and re.search("inf|nan", d.ours))),
    ("nor is such a rounding error on the kink of abs or relu, as a 0 is",
     lambda d: d.kind == "gradient" and uses(d, "batch_norm", "group_norm", "layer_norm") and
     uses(d, "abs", "sign", "relu", "leaky_relu", "elu", "l1_loss") and
     re.search(r"\d(e-0[789]|e-1\d)( |$)", d.answer, re.M)),
    ("of an infinite gradient, that of gelu's two terms is inf - inf; PyTorch adds the terms first",
     lambda d: d.kind == "gradient" and uses(d, "gelu") and '"tanh"' in " ".join(d.program) and "nan" in d.ours and
     "inf" in d.theirs),
    ("nor of an infinite gradient that of the two terms of binary_cross_entropy_with_logits",
     lambda d: d.kind in ("gradient", "value") and uses(d, "binary_cross_entropy_with_logits") and "nan" in d.ours and
     "inf" in d.theirs),
    ("PyTorch's layer_norm or batch_norm with a bias and no weight loses what passes through the gradient of its bias",
     lambda d: d.kind == "gradient" and twice(d) and
     re.search(r"= (layer_norm \w+ \S+|batch_norm \w+ \S+ \S+) none (?!none)", "\n".join(d.program))),
    ("PyTorch's assignment by an index that does not fit has written a part before it refuses",
     lambda d: d.kind in ("value", "gradient") and any("= []=.tensor " in line for line in d.refused)),
    ("a parameter of batch_norm, and the weight of classes, is a line; PyTorch counts its elements alone",
     refuses("batch_norm: a parameter has shape", "nll_loss: the weight has shape", "cross_entropy: the weight has")),
    ("PyTorch's group_norm of nothing has gradients of NaN; ours are 0",
     lambda d: d.kind == "gradient" and uses(d, "group_norm") and "nan" in d.theirs and
     not any(map(float, d.ours.split()[2:]))),
    ("PyTorch's take_along_dim without an axis wants its tensors in one piece",
     lambda d: d.op == "take_along_dim.line" and says("view size is not compatible")(d)),
    ("a mask or numbers in square brackets, and the mask of masked_fill, may be overwritten afterwards",
     lambda d: says("modified by an inplace operation")(d) and uses(d, "[]=.tensor", "operator[].tensor", "masked_fill",
                                                                    "masked_fill_")),
    ("PyTorch has no derivative for the weight of a class",
     says("respect to argument 'weight'", "respect to argument 'pos_weight'")),
    ("PyTorch's pools take no empty image",
     says("optional 0 dim batch size", "Expected input to have non-zero size")),
    ("PyTorch's roll wants a shift; a roll by nothing changes nothing", says("`shifts` required")),
    ("PyTorch's logsumexp over no axis fails", lambda d: d.op == "logsumexp" and says("output with shape")(d)),
    ("PyTorch's gradient of a clamp between a 0-d tensor and a larger one fails",
     lambda d: says("doesn't match the broadcast shape")(d) and uses(d, "clamp.tensors")),
    ("PyTorch's gradient of a float to the power of a bool fails", says("Subtraction, the `-` operator, with a bool")),
    ("PyTorch's gradient of var and std fails where no degree of freedom is left",
     says("StdBackward0 returned an invalid gradient", "VarBackward0 returned an invalid gradient")),
    ("PyTorch gives the norm of order 0 no gradient at all; ours is 0",
     lambda d: d.kind == "gradient" and of_order_0(d) and d.theirs == "nothing"),
    ("PyTorch's norm of order 0 does not know its operand",
     lambda d: of_order_0(d) and
     (says("appears to not have been used")(d) or d.kind == "result" and "none" in d.theirs)),
]
