"""The speed table: minitensor against PyTorch and NumPy, measured in turn on this machine.

    ./run bench [--functions] [--rounds N] [--threads N] [--python PROGRAM]

Every round runs each program once and takes the best of nine samples of a case; a figure is the median
over the rounds, and a ratio is the median of the ratios within a round, so that a machine that slows
down for a while does not count against one side. "release" is the release preset, "student" the line
a student types. --functions measures elementwise functions and reductions, one after the other, beside
PyTorch. PROGRAM is a Python that has another PyTorch or NumPy, as in an environment of its own.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = {
    "release": ["-O3", "-march=native", "-fno-math-errno", "-DNDEBUG", "-DMINITENSOR_BLAS"],
    "student": ["-O2"],
}


def build(folder, threads):
    programs = {}
    for name, flags in FLAGS.items():
        program = folder / name
        if threads > 1 and name == "release":
            flags = [*flags, "-fopenmp"]
        command = ["g++", "-std=c++20", *flags, f"-I{ROOT}", str(ROOT / "bench/ours.cpp"), "-o", str(program)]
        if "-DMINITENSOR_BLAS" in flags:
            command.append("-lopenblas")
        print(f"{name + ':':9}" + " ".join(["g++", "-std=c++20", *flags]), flush=True)
        subprocess.run(command, check=True)
        programs[name] = [str(program)]
    return programs


SMALL_PROGRAM = """#include "minitensor.hpp"
int main() {
  auto x = mt::tensor(2.0, {.requires_grad = true});
  auto z = x * x + x.pow(3);
  z.backward();
  std::cout << x.grad() << '\\n';
}
"""


def compile_cost(folder):
    """The processor time that a small program takes to compile, the best of three."""
    source = folder / "small.cpp"
    source.write_text(SMALL_PROGRAM)
    command = ["g++", "-std=c++20", "-O2", f"-I{ROOT}", "-c", str(source), "-o", str(folder / "small.o")]
    times = []
    for _ in range(3):
        before = os.times().children_user
        subprocess.run(command, check=True)
        times.append(os.times().children_user - before)
    print(f"compile: {min(times):.1f} s of processor time for a small program, g++ -O2")


def python_with(module, pythons):
    """The first Python that has this module, or None."""
    for python in pythons:
        found = subprocess.run(
            [python, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True
        )
        if found.returncode == 0:
            print(f"{module + ':':9}{found.stdout.strip()}")
            return [python, str(ROOT / "bench/theirs.py"), module]
    print(f"{module + ':':9}not installed, its column is left out (Debian: python3-{module})")
    return None


def run(command, groups, threads):
    environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
    lines = []
    for group in groups:
        process = subprocess.run([*command, group], check=True, capture_output=True, text=True, env=environment)
        lines += process.stdout.splitlines()
    return {name: float(value) for name, value in (line.split("\t") for line in lines)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--functions", action="store_true")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--python")
    words = arguments.parse_args()
    rounds, threads = words.rounds, words.threads
    groups, modules = ["tensors", "training"], ["torch", "numpy"]
    if words.functions:
        groups, modules = ["functions"], ["torch"]
    # Debian keeps its packages in /usr/bin/python3.
    pythons = [words.python] if words.python else [sys.executable, "/usr/bin/python3"]
    with tempfile.TemporaryDirectory() as folder:
        programs = build(pathlib.Path(folder), threads)
        if not words.functions:
            compile_cost(pathlib.Path(folder))
        for module in modules:
            command = python_with(module, pythons)
            if command:
                programs[module] = command
        results = [{name: run(command, groups, threads) for name, command in programs.items()} for _ in range(rounds)]
    print(f"medians of {rounds} rounds (each the best of nine samples), threads: {threads}\n")
    theirs = [name for name in ("torch", "numpy") if name in programs]
    ratios = [(ours, other) for other in theirs for ours in FLAGS]
    print("| case | " + " | ".join(f"{name}, us" for name in programs) + " | "
          + " | ".join(f"{ours} / {other}" for ours, other in ratios) + " |")
    print("|---|" + "---:|" * (len(programs) + len(ratios)))
    for case in results[0]["release"]:
        def column(name):
            values = [result[name][case] / 1000 for result in results if case in result[name]]
            return f"{statistics.median(values):.3g}" if values else ""

        def ratio(ours, other):
            values = [r[ours][case] / r[other][case] for r in results if case in r[other]]
            return f"{statistics.median(values):.2f}" if values else ""

        cells = [column(name) for name in programs] + [ratio(*pair) for pair in ratios]
        print(f"| {case} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
