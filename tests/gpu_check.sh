#!/usr/bin/env bash
# kernels.cu on a real GPU: builds it for the card that is here, runs the tests of test_cuda.cpp on
# it, looks at a few of them with compute-sanitizer, prints a table of times, and plays lesson 18.
# Under 6 minutes.
#
#     tests/gpu_check.sh [folder for what it builds]
#
# UNTRIED: so far there has been no machine with a GPU. What has run is kernels.cu over the stand-in
# (tests/cuda_on_cpu), this script's compile commands, and nothing else of it.
#
# It needs nvcc, cuBLAS, g++ and Catch2's header (CATCH_INCLUDE says where, if it is not with the
# system's).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build-gpu}
mkdir -p "$build"
say() { echo "gpu_check: $* (${SECONDS} s)"; }

command -v nvcc >/dev/null || { echo "skipped: nvcc is not installed"; exit 0; }
if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "skipped: no NVIDIA GPU was found"
  exit 0
fi
nvidia-smi -L

cuda_root=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
library=$cuda_root/lib64
compile=(g++ -std=c++20 -O1 -w -I. "-I${CATCH_INCLUDE:-/usr/include}" "-DSOURCE_DIRECTORY=\"$PWD\"")

say "compiling, all at once"
nvcc -std=c++20 -O3 --expt-relaxed-constexpr -diag-suppress 2810 -arch=native -lineinfo -I. \
  -c kernels.cu -o "$build/kernels.o" &
"${compile[@]}" -DON_A_GPU -c tests/test_cuda.cpp -o "$build/test_cuda.o" &
printf '#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n' >"$build/main.cpp"
"${compile[@]}" -c "$build/main.cpp" -o "$build/main.o" &
g++ -std=c++20 -O3 -march=native -w -I. -c tests/programs/gpu_times.cpp -o "$build/gpu_times.o" &
for name in 18_gpu main; do
  g++ -std=c++20 -O3 -march=native -w -I. -c lessons/$name.cpp -o "$build/lesson_$name.o" &
done
for _ in 1 2 3 4 5 6; do wait -n; done  # one that fails ends the script
link() {  # program, objects
  g++ "${@:2}" "$build/kernels.o" -o "$build/$1" \
    -L"$library" -Wl,-rpath,"$library" -lcublas -lcudart -lpthread
}
link test_cuda "$build"/{test_cuda,main}.o
link gpu_times "$build/gpu_times.o"
link lesson "$build"/lesson_{18_gpu,main}.o

failed=0
say "the tests, on the card"
timeout 120 "$build/test_cuda" -d yes || failed=1

if command -v compute-sanitizer >/dev/null; then
  look() {  # tool, test
    say "compute-sanitizer, $1: $2"
    timeout 60 compute-sanitizer --tool "$1" --error-exitcode 1 "$build/test_cuda" "$2" || failed=1
  }
  look memcheck "a thread goes on*"
  look memcheck "a stack of matrices*"
  look racecheck "a thread goes on*"
  look synccheck "a thread goes on*"
  look initcheck "a training on the card*"
else
  say "compute-sanitizer is not installed"
fi

say "times"
timeout 60 "$build/gpu_times" || failed=1
say "lesson 18"
timeout 60 "$build/lesson" || failed=1
if ((failed)); then say "something FAILED"; else say "all is well"; fi
exit "$failed"
