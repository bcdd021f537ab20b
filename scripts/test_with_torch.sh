#!/bin/sh
# Builds the project against a libtorch out of a wheel of PyTorch and runs the tests with it: scripts/test_with_torch.sh [VERSION]
# Needs python3 with venv, and PyPI. Not part of CI: the wheel and what it needs take several GB. The environment is kept in build/torch-venv.
set -eu
cd "$(dirname "$0")/.."
version="${1:-}"
venv=build/torch-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import torch' 2>/dev/null || "$venv/bin/pip" install "torch${version:+==$version}" numpy
prefix=$("$venv/bin/python" -c 'import torch; print(torch.utils.cmake_prefix_path)')
"$venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
cmake -S . -B build/torch -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" -DPIPEDREAM_ENABLE_BENCH=OFF
ninja -C build/torch
ctest --test-dir build/torch --output-on-failure -j 2
