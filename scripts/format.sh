#!/usr/bin/env bash
# Formats all C++ files with clang-format 14, or says which ones are not formatted (--check).
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format) || { echo "error: clang-format is missing" >&2; echo "hint: apt-get install clang-format-14" >&2; exit 1; }
mapfile -t files < <(git ls-files '*.cpp' '*.hpp')
if [ "${1:-}" = --check ]; then "$tool" --dry-run -Werror "${files[@]}"; else "$tool" -i "${files[@]}"; fi
