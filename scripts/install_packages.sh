#!/usr/bin/env bash
# Installs what the build needs from Debian's packages, where something is missing. Root, or sudo.
set -euo pipefail
cd "$(dirname "$0")"
missing=()
while read -r package; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < packages.txt
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if ! command -v apt-get >/dev/null; then
  echo "error: missing packages: ${missing[*]}" >&2
  echo "hint: this script knows Debian's apt-get only; install the like of them by hand" >&2
  exit 1
fi
run=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "error: missing packages: ${missing[*]}" >&2; echo "hint: run this as root, or install sudo" >&2; exit 1; }
  run=(sudo)
fi
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${run[@]}" apt-get update -qq
"${run[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
