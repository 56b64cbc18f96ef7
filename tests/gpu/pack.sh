#!/usr/bin/env bash
# Packs what run.sh runs on a machine with a GPU and no Rust: release test binaries, benchmarks, programs, and PyTorch's
# side. Built as everything else is, so for any x86-64 processor; the libraries of the system that they need must be no
# newer than those of such machines.
#
#     tests/gpu/pack.sh [ARCHIVE]     highwater-gpu.tar.gz in the current folder, unless another is named
#
# Variables:
#   HIGHWATER_PACK_PROFILE         Cargo's profile: release, unless this is only to try whether everything works
#   HIGHWATER_PACK_ARCHITECTURES   for which GPUs kernels are compiled here ("sm_80 sm_90"; "" for none). They are found there
#                                  by machines whose compiler has the version of the one here; others compile their own
#   HIGHWATER_CUDA_PATH            the folder of libnvrtc; without one, kernels are left to the machine with the GPU
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$(realpath -m "${1:-$OLDPWD/highwater-gpu.tar.gz}")
profile=${HIGHWATER_PACK_PROFILE:-release}
architectures=${HIGHWATER_PACK_ARCHITECTURES-sm_80 sm_90}
most_bytes=$((50 << 20))
newest_glibc=2.35

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pack=$folder/highwater-gpu
mkdir -p "$pack/bin" "$pack/tests" "$pack/data" "$pack/kernels"

# build FOLDER ARGUMENTS: builds, and copies each program made under the name of its target; tests under their package's
# as well.
build() {
  local to=$1
  shift
  cargo "$@" --profile "$profile" --locked --message-format=json-render-diagnostics | sed -n \
    's/.*"package_id":"\([^"]*\)".*"target":{.*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2 \3/p' |
    while read -r package name path; do
      package=${package%%#*}
      if [ "$to" = tests ]; then name=$(basename "$package")-$name; fi
      cp "$path" "$pack/$to/$name"
    done
}

# The tests that have a GPU or the stand-in under them.
tests_of() {
  grep -rl 'highwater_stand_in' "$1/tests" | sed "s,^$1/tests/,,; s,/.*,,; s,\.rs$,," | sort -u | sed 's/^/--test /'
}
# shellcheck disable=SC2046 # one word each
build tests test --no-run -p highwater-kernels $(tests_of kernels)
# shellcheck disable=SC2046
build tests test --no-run -p highwater-engine $(tests_of engine)
build bin build -p highwater-kernels --example compile
build bin build -p highwater-tests --examples
build bin bench --no-run -p highwater-engine --bench alloc
build bin build -p highwater --no-default-features --features engine,run
rm -f "$pack/bin/beside_pytorch"

cp tests/gpu/run.sh tests/gpu/*.py "$pack"
cp tests/data/pytorch_bytes.py engine/tests/data/torch/{make_loops,make_conv_fixtures}.py "$pack/data"
changes=$(git status --porcelain --untracked-files=no 2>/dev/null | wc -l)
echo "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$([ "$changes" = 0 ] || echo ', changed')" >"$pack/commit"

for program in "$pack"/bin/* "$pack"/tests/*; do
  # Names of functions stay, for stacks; lines and files are the larger part.
  strip --strip-debug "$program"
  needed=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -uV | tail -1)
  if [ "$(printf '%s\n' "$needed" "$newest_glibc" | sort -V | tail -1)" != "$newest_glibc" ]; then
    echo "$(basename "$program") needs glibc $needed; machines have $newest_glibc" >&2
    exit 1
  fi
done

for architecture in $architectures; do
  if ! HIGHWATER_KERNEL_CACHE=$pack/kernels "$pack/bin/compile" "$architecture"; then
    echo "kernels for $architecture are not packed; a machine with a GPU compiles them" >&2
  fi
done

tar -czf "$archive" -C "$folder" highwater-gpu
bytes=$(stat -c %s "$archive")
programs=$(find "$pack/bin" "$pack/tests" -type f | wc -l)
echo "$archive: $((bytes >> 20)) MiB, $programs programs, $(find "$pack/kernels" -name '*.cubin' | wc -l) compiled kernel files"
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "more than $((most_bytes >> 20)) MiB" >&2
  exit 1
fi
