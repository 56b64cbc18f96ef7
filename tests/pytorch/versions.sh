#!/usr/bin/env bash
# Runs the tests of the simulated GPU with each supported version of PyTorch.
#
#     tests/pytorch/versions.sh DIR [VERSION …]     such as: tests/pytorch/versions.sh /tmp/torch
#
# Installs each version into a folder of DIR with install.sh, which needs 5.5 GB for each. Needs target/debug/highwater.
set -euo pipefail

[ $# -ge 1 ] || {
  echo "error: expected a folder, such as: $0 /tmp/torch" >&2
  exit 1
}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# -ge 1 ] || set -- 2.6.0 2.11.0 2.15.0
project=$(cd "$(dirname "$0")/../.." && pwd)
[ -x "$project/target/debug/highwater" ] || {
  echo "error: $project/target/debug/highwater does not exist: run cargo build -p highwater first" >&2
  exit 1
}

failed=()
for version in "$@"; do
  "$project/tests/pytorch/install.sh" "$folder/$version" "$version"
  (cd "$project/recorder/python" && PATH="$project/target/debug:$PATH" "$folder/$version/python" -m pytest -q \
    tests/test_simulated.py tests/test_simulated_programs.py) || failed+=("$version")
done
[ ${#failed[@]} = 0 ] || {
  echo "error: the tests failed with PyTorch ${failed[*]}" >&2
  exit 1
}
