// Memory shared with other libraries by DLPack: within this program, and with NumPy and PyTorch in
// one Python process.
#include <iostream>

#include "tests/files.hpp"

using namespace mt;
using namespace files_of_tests;
using tensors::error_of;
using tensors::values;
using tensors::Values;

namespace {

#if MINITENSOR_DLPACK

// Another library's record: memory of its own, and a count of how often it was told to let go.
struct Theirs {
  std::vector<std::int64_t> shape, strides;
  std::vector<double> numbers;
  int let_go = 0;
  DLManagedTensor managed = {};

  Theirs(std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps, std::size_t count)
      : shape(std::move(sizes)), strides(std::move(steps)), numbers(count) {
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<double>(i);
    managed.dl_tensor.data = numbers.data();
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.ndim = static_cast<int>(shape.size());
    managed.dl_tensor.dtype = {kDLFloat, 64, 1};
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = strides.empty() ? nullptr : strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Theirs*>(self->manager_ctx)->let_go;
    };
  }
  Theirs(const Theirs&) = delete;
  Theirs& operator=(const Theirs&) = delete;
};

// ---- Out ----------------------------------------------------------------------------------------

TEST_CASE("a shared tensor is described by its memory, shape, strides and type") {
  const Tensor x = arange(24, {.dtype = float32}).reshape(2, 3, 4).transpose(0, 2).slice(0, 1, 3);
  DLManagedTensor* const shared = to_dlpack(x);
  const DLTensor& there = shared->dl_tensor;
  CHECK(there.data == x.data<float>());
  CHECK(there.byte_offset == 0);
  CHECK(there.device.device_type == kDLCPU);
  CHECK(std::vector<std::int64_t>(there.shape, there.shape + there.ndim) ==
        std::vector<std::int64_t>{2, 3, 2});
  CHECK(std::vector<std::int64_t>(there.strides, there.strides + there.ndim) ==
        std::vector<std::int64_t>{1, 4, 12});
  CHECK(there.dtype.code == kDLFloat);
  CHECK(there.dtype.bits == 32);
  CHECK(there.dtype.lanes == 1);
  shared->deleter(shared);
}

TEST_CASE("shared memory lives until both sides have let go") {
  for (const bool tensor_goes_first : {true, false}) {
    bool gone = false;
    std::vector<float> numbers{1, 2, 3};
    Tensor x = from_blob(numbers.data(), {3}, {}, [&] { gone = true; });
    DLManagedTensor* const shared = to_dlpack(x);
    if (tensor_goes_first)
      x = Tensor();
    else
      shared->deleter(shared);
    CHECK_FALSE(gone);
    if (tensor_goes_first)
      shared->deleter(shared);
    else
      x = Tensor();
    CHECK(gone);
  }
}

TEST_CASE("memory that the header allocated outlives its tensor while it is shared") {
  DLManagedTensor* const shared = to_dlpack(tensor({1., 2., 3.}));
  static_cast<float*>(shared->dl_tensor.data)[2] = 7;  // the address sanitizer watches
  const Tensor back = from_dlpack(shared);
  CHECK(values(back) == Values{1, 2, 7});
}

TEST_CASE("every dtype, no axes and no elements go out and come back as they were") {
  for (const Tensor& x :
       {tensor({{1., 2.}, {3., 4.}}).t(), tensor({1., 2.}, {.dtype = float64}), tensor({1, 2}),
        tensor({true, false}), tensor(3.0), zeros({3, 0}),
        tensor({1., 2.}).unsqueeze(0).expand({3, 2}), zeros({1, 1, 1, 1, 1, 1, 1, 1})}) {
    const Tensor back = from_dlpack(to_dlpack(x));
    CHECK(description(back) == description(x));
    CHECK(back.stride() == x.stride());
    CHECK(back.elements().data == x.elements().data);
    CHECK(back.is_leaf());
  }
}

TEST_CASE("what cannot be shared is refused with a hint") {
  CHECK(error_of([] { return to_dlpack(tensor(1., {.requires_grad = true})) != nullptr; }) ==
        "to_dlpack: the tensor is part of a graph, which the other side would not see at HERE. "
        "Hint: share x.detach()");
  CHECK(error_of([] { return to_dlpack(Tensor()) != nullptr; }) ==
        "to_dlpack: an input is undefined, as a Tensor without a value is, and grad() before a "
        "backward pass at HERE. Hint: begin with tensor(0.0) or zeros(...), call backward() first, "
        "or ask defined()");
}

// ---- In -----------------------------------------------------------------------------------------

TEST_CASE("a tensor over another library's memory writes into it and lets go once") {
  Theirs theirs({2, 3}, {1, 2}, 6);
  {
    const Tensor x = from_dlpack(&theirs.managed);
    CHECK(x.dtype() == float64);
    CHECK(x.stride() == Shape(1, 2));
    CHECK(values(x) == Values{0, 2, 4, 1, 3, 5});
    const Tensor row = x[1];
    row.fill_(9);
    theirs.numbers[0] = 7;
    CHECK(values(x) == Values{7, 2, 4, 9, 9, 9});
    CHECK(values(x + 1) == Values{8, 3, 5, 10, 10, 10});
    CHECK(theirs.let_go == 0);
  }
  CHECK(theirs.let_go == 1);
  CHECK(theirs.numbers == std::vector<double>{7, 9, 2, 9, 4, 9});
}

TEST_CASE("a view keeps another library's memory after the tensor itself is gone") {
  Theirs theirs({6}, {}, 6);
  Tensor part = from_dlpack(&theirs.managed).slice(0, 2, 4);
  CHECK(theirs.let_go == 0);
  CHECK(values(part) == Values{2, 3});
  part = Tensor();
  CHECK(theirs.let_go == 1);
}

TEST_CASE("strides may be left out, an offset is in bytes, and a deleter need not be there") {
  Theirs theirs({2, 2}, {}, 6);
  theirs.managed.dl_tensor.byte_offset = 2 * sizeof(double);
  theirs.managed.deleter = nullptr;
  const Tensor x = from_dlpack(&theirs.managed);
  CHECK(values(x) == Values{2, 3, 4, 5});
  CHECK(x.is_contiguous());
}

TEST_CASE("B173: without strides a record lies row by row") {
  Theirs theirs({2, 3}, {}, 6);
  CHECK(theirs.managed.dl_tensor.strides == nullptr);
  const Tensor x = from_dlpack(&theirs.managed);
  CHECK(x.shape() == Shape(2, 3));
  CHECK(x.stride() == Shape(3, 1));
  CHECK(values(x) == Values{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a record that no tensor can be is refused, and stays the caller's") {
  struct Row {
    void (*spoil)(DLManagedTensor&);
    const char* sentence;
  };
  const Row table[] = {
      {[](DLManagedTensor& m) { m.dl_tensor.device.device_type = kDLCUDA; },
       "the memory has to be the processor's"},
      {[](DLManagedTensor& m) {
         m.dl_tensor.dtype = {kDLInt, 32, 1};
       },
       "the elements (DLPack's type 0, 32 bits) have no dtype here"},
      {[](DLManagedTensor& m) { m.dl_tensor.dtype.lanes = 4; },
       "the elements (DLPack's type 2, 64 bits) have no dtype here"},
      {[](DLManagedTensor& m) { m.dl_tensor.ndim = 9; },
       "a tensor has at most 8 dimensions, not 9"},
      {[](DLManagedTensor& m) { m.dl_tensor.ndim = -1; },
       "a tensor has at most 8 dimensions, not -1"},
      {[](DLManagedTensor& m) { m.dl_tensor.shape = nullptr; },
       "a tensor has at most 8 dimensions, not 2"},
      {[](DLManagedTensor& m) { m.dl_tensor.shape[0] = -1; }, "a size is negative: [-1, 3]"},
      {[](DLManagedTensor& m) { m.dl_tensor.shape[0] = std::int64_t{1} << 60; },
       "[1152921504606846976, 3] has too many elements for any memory"},
      {[](DLManagedTensor& m) { m.dl_tensor.strides[1] = -1; },
       "the strides [3, -1] run backwards"},
      {[](DLManagedTensor& m) { m.dl_tensor.strides[0] = std::int64_t{1} << 60; },
       "the strides [1152921504606846976, 1] reach farther than any memory"},
      {[](DLManagedTensor& m) { m.dl_tensor.data = nullptr; }, "the pointer to the memory is null"},
      {[](DLManagedTensor& m) { m.dl_tensor.byte_offset = 4; },
       "the elements do not begin at a multiple of their size"},
  };
  for (const Row& row : table) {
    Theirs theirs({2, 3}, {3, 1}, 6);
    row.spoil(theirs.managed);
    const std::string text = error_of([&] { return from_dlpack(&theirs.managed); });
    CHECK(text.substr(0, text.find(" at HERE")) == std::string("from_dlpack: ") + row.sentence);
    CHECK(theirs.let_go == 0);
  }
  CHECK(error_of([] { return from_dlpack(nullptr); }) ==
        "from_dlpack: the pointer to the record is null at HERE.");
}

// ---- With Python --------------------------------------------------------------------------------

// programs/shared_memory.cpp as a module of functions, and its pointers as capsules.
const char* const bridge = R"(
import ctypes, gc
library = ctypes.CDLL(')" SHARED_MEMORY_LIBRARY R"(')
for name in ['share', 'share_again']: getattr(library, name).restype = ctypes.c_void_p
for name in ['take', 'describe']: getattr(library, name).restype = ctypes.c_char_p
library.take.argtypes = [ctypes.c_void_p]
library.set.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_double]
python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
new, used = b'dltensor', b'used_dltensor'  # a capsule keeps the pointer to its name

class Theirs:
    def __init__(self, pointer): self.capsule = python.PyCapsule_New(pointer, new, None)
    def __dlpack__(self, **keywords): return self.capsule
    def __dlpack_device__(self): return (1, 0)

def give(capsule):
    sentence = library.take(python.PyCapsule_GetPointer(capsule, new)).decode()
    if not sentence: python.PyCapsule_SetName(capsule, used)
    return sentence
def describe_ours(): return library.describe().decode()
)";

// Python comes without the address sanitizer, which then has to come first.
bool python_loads_our_library() {
#ifdef __SANITIZE_ADDRESS__
  std::cout << "skipped: Python cannot load a library of a build with the address sanitizer\n";
  return false;
#else
  return true;
#endif
}

TEST_CASE("NumPy and we look at the same memory, both ways") {
  if (!python_loads_our_library() || !python_has("numpy")) return;
  shell::TemporaryFolder folder;
  CHECK(python(folder, std::string(bridge) + R"(
print('ours, seen by NumPy')
before = library.times_let_go()
array = np.from_dlpack(Theirs(library.share()))
print(array.dtype, array.shape, array.strides, array.tolist())
library.set(2, 1, 42)
print(array[2, 1])
library.let_go()
print(array.sum(), library.times_let_go() - before)
del array; gc.collect()
print(library.times_let_go() - before)

print('theirs, seen by us')
array = np.arange(6.0).reshape(2, 3).T
count = sys.getrefcount(array)
print(repr(give(array.__dlpack__())), describe_ours())
array[0, 1] = -1
library.set(1, 0, 7)
print(describe_ours(), array.tolist())
library.let_go()
print(sys.getrefcount(array) - count)
give(array.__dlpack__())
del array; gc.collect()
print(describe_ours())
library.let_go()
print(give(np.arange(3, dtype='i4').__dlpack__()).split(' at ')[0])
print(give(np.arange(6.0)[::-1].__dlpack__()).split(' at ')[0])
print(repr(give(np.arange(6)[::2].__dlpack__())), describe_ours())
print(repr(give(np.zeros((0, 3)).__dlpack__())), describe_ours())
print(repr(give(np.array(3.5).__dlpack__())), describe_ours())
library.let_go()
)") == R"(ours, seen by NumPy
float32 (3, 2) (4, 12) [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
42.0
52.0 0
1
theirs, seen by us
'' float64 [3, 2] strides [1, 3]: 0 3 1 4 2 5
float64 [3, 2] strides [1, 3]: 0 -1 7 4 2 5 [[0.0, -1.0], [7.0, 4.0], [2.0, 5.0]]
0
float64 [3, 2] strides [1, 3]: 0 -1 7 4 2 5
from_dlpack: the elements (DLPack's type 0, 32 bits) have no dtype here
from_dlpack: the strides [-1] run backwards
'' int64 [3] strides [2]: 0 2 4
'' float64 [0, 3] strides [3, 1]:
'' float64 [] strides []: 3.5
)");
}

TEST_CASE("PyTorch and we look at the same memory, both ways") {
  if (!python_loads_our_library() || !python_has("torch")) return;
  shell::TemporaryFolder folder;
  CHECK(python(folder, std::string(bridge) + R"(
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack
print('ours, seen by PyTorch')
before = library.times_let_go()
x = from_dlpack(python.PyCapsule_New(library.share(), new, None))
print(x.dtype, tuple(x.shape), x.stride(), x.tolist())
library.set(2, 1, 42)
x[0, 0] = 9
print(x[2, 1].item(), describe_ours())
again = from_dlpack(python.PyCapsule_New(library.share_again(), new, None))
print(again.data_ptr() == x.data_ptr())
library.let_go()
print(x.sum().item(), library.times_let_go() - before)
del x; gc.collect()
print(again.sum().item(), library.times_let_go() - before)
del again; gc.collect()
print(library.times_let_go() - before)

print('theirs, seen by us')
x = torch.arange(6.0).reshape(2, 3).t()
print(repr(give(to_dlpack(x))), describe_ours())
x[0, 1] = -1
library.set(1, 0, 7)
print(describe_ours(), x.tolist())
del x; gc.collect()
print(describe_ours())
library.let_go()
print(repr(give(to_dlpack(torch.ones(1).expand(2, 2)))), describe_ours())
print(give(to_dlpack(torch.ones(3, dtype=torch.float16))).split(' at ')[0])
library.let_go()
)") == R"(ours, seen by PyTorch
torch.float32 (3, 2) (1, 3) [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
42.0 float32 [3, 2] strides [1, 3]: 9 3 1 4 2 42
True
61.0 0
61.0 0
1
theirs, seen by us
'' float32 [3, 2] strides [1, 3]: 0 3 1 4 2 5
float32 [3, 2] strides [1, 3]: 0 -1 7 4 2 5 [[0.0, -1.0], [7.0, 4.0], [2.0, 5.0]]
float32 [3, 2] strides [1, 3]: 0 -1 7 4 2 5
'' float32 [2, 2] strides [0, 0]: 1 1 1 1
from_dlpack: the elements (DLPack's type 2, 16 bits) have no dtype here
)");
}

#else
TEST_CASE("without dlpack.h sharing is refused and told why") {
  CHECK(error_of([] { return from_dlpack(nullptr); }) ==
        "from_dlpack: this program was compiled without dlpack/dlpack.h at HERE. "
        "Hint: apt-get install libdlpack-dev, then compile it again");
}
#endif

}  // namespace
