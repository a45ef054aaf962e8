#!/usr/bin/env bash
# kernels.cu on a real GPU: builds it for the card that is here, runs the tests of test_cuda.cpp on it
# (every operation with its gradients, kernels, random numbers, optimisers), trains networks beside
# PyTorch, looks at a few tests with compute-sanitizer, prints a table of times against PyTorch, and
# plays lesson 18. Under 6 minutes.
#
#     tests/gpu_check.sh [folder for what it builds]
#
# Not yet run as a whole on a GPU. The build has run with nvcc 13 and CMake 3.25, and all of the
# programs over the stand-in (tests/cuda_on_cpu).
#
# It needs nvcc with cuBLAS, CMake, Catch2 (CMAKE_PREFIX_PATH says where, if it is not with the
# system's); for the trainings nlohmann-json, and for them and the comparison python3 with PyTorch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build-gpu}
say() { echo "gpu_check: $* (${SECONDS} s)"; }

command -v nvcc >/dev/null || { echo "skipped: nvcc is not installed"; exit 0; }
if [[ $(nvidia-smi -L 2>/dev/null) != *GPU* ]]; then
  echo "skipped: no NVIDIA GPU was found"
  exit 0
fi
nvidia-smi -L
capability=$(nvidia-smi --id=0 --query-gpu=compute_cap --format=csv,noheader | tr -d .)

say "building for compute capability $capability"
cmake -S . -B "$build" --log-level=NOTICE -D CMAKE_BUILD_TYPE=Release -D MINITENSOR_CUDA=ON \
  -D MINITENSOR_WINDOW=OFF -D MINITENSOR_GRAPHVIZ=OFF -D CMAKE_CUDA_ARCHITECTURES="$capability-real" \
  -D CMAKE_CUDA_FLAGS=-lineinfo
cmake --build "$build" --parallel "$(nproc)" --target gpu_programs
programs=$build/tests

failed=0
check() {  # seconds at most, what it is, command
  say "$2"
  timeout "$1" "${@:3}" || { failed=1; say "FAILED: $2"; }
}
check 90 "the tests, on the card" "$programs/gpu_test" -d yes
if [[ -x $programs/gpu_train ]]; then
  check 60 "trainings, beside PyTorch" python3 tests/parity/run --program "$programs/gpu_train" \
    --device cuda
else
  say "nlohmann-json is not installed, and so no training is compared with PyTorch's"
fi
if command -v compute-sanitizer >/dev/null; then
  look() {  # tool, test
    check 40 "$1: $2" compute-sanitizer --tool "$1" --error-exitcode 1 "$programs/gpu_test" "$2"
  }
  look memcheck "a thread goes on*"
  look memcheck "a stack of matrices*"
  look racecheck "a thread goes on*"
  look synccheck "a thread goes on*"
  look initcheck "a training on the card*"
else
  say "compute-sanitizer is not installed"
fi
check 120 "times" python3 tests/gpu_times --program "$programs/gpu_times"
check 60 "lesson 18" "$programs/gpu_lesson" --brief
if ((failed)); then say "something FAILED"; else say "all is well"; fi
exit "$failed"
