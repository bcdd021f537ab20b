#!/bin/sh
# Builds the project against the libtorch of a wheel of PyTorch and runs the tests with it: scripts/test_with_torch.sh [VERSION [ctest options]]
# Needs python3 with venv, and PyPI. Not part of CI: the wheel and what it needs take several GB. The environment is kept in build/torch-venv;
# VENV=FOLDER names another, with torch in it.
set -eu
cd "$(dirname "$0")/.."
version="${1:-}"
[ $# -eq 0 ] || shift
venv="${VENV:-build/torch-venv}"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import torch' 2>/dev/null || "$venv/bin/pip" install "torch${version:+==$version}" torchvision numpy safetensors
prefix=$("$venv/bin/python" -c 'import torch; print(torch.utils.cmake_prefix_path)')
"$venv/bin/python" -c 'import torch; print("torch", torch.__version__)'
launcher=""
if command -v ccache >/dev/null; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake -S . -B build/torch -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" $launcher
ninja -C build/torch
ctest --test-dir build/torch --output-on-failure --no-tests=error -j 2 "$@"
