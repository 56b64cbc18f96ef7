#!/usr/bin/env bash
# Runs what needs a GPU, on a machine with one, Python and PyTorch, and no Rust: tests, then our training steps beside
# PyTorch's. Unpacked from the archive that pack.sh makes; prints one page of Markdown and writes it to $OUT, or here.
#
#     ./run.sh [PART…]     all parts, or those named; `./run.sh list` names them
#
# To see whether it works where there is no GPU (gpu.md in docs says how): on the stand-in for CUDA's libraries.
#
# Variables:
#   PYTHON                     the Python that has PyTorch (python3)
#   HIGHWATER_CUDA_PATH        folders with libnvrtc and libcublasLt; else looked for beside PyTorch and in /usr/local/cuda
#   HIGHWATER_GPU_SECONDS      how long everything may take (520)
#   HIGHWATER_GPU_LIMIT_FACTOR multiplies the time limit of every program (1)
#   HIGHWATER_GPU_TINY=1       tiny models: to see whether this works at all
#   HIGHWATER_GPU_PYTORCH      another Python, that has PyTorch, where the one above has none
#   HIGHWATER_GPU_WORK         where recordings go (work, beside this script)
#   HIGHWATER_KERNEL_CACHE     where compiled kernels are, and are kept (kernels, beside this script, where pack.sh put some)
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
  echo "run.sh needs Python: there is no $python; name one in PYTHON" >&2
  exit 2
fi

# The folders of site-packages, and of a toolkit, that hold the two libraries.
if [ -z "${HIGHWATER_CUDA_PATH+set}" ]; then
  HIGHWATER_CUDA_PATH=$("$python" - <<'FIND'
import glob, os, site, sys
packages = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
patterns = [os.path.join(root, "nvidia", "**") for root in packages]
# PyTorch of conda has its libraries in the environment, that of a distribution in the system's folders.
patterns += [os.path.join(root, "torch", "lib") for root in packages] + [os.path.join(sys.prefix, "lib")]
patterns += [os.path.join(root, "**") for root in ["/usr/local/cuda", *glob.glob("/usr/local/cuda-*")]]
patterns += ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
found = []
for library in ["libnvrtc.so.1*", "libcublasLt.so.1*"]:
    for pattern in patterns:
        files = glob.glob(os.path.join(pattern, library), recursive=True)
        if files:
            found.append(os.path.dirname(sorted(files)[0]))
            break
print(":".join(dict.fromkeys(found)))
FIND
)
fi
export HIGHWATER_CUDA_PATH HIGHWATER_TEST_GPU=1
export HIGHWATER_GPU_WORK=${HIGHWATER_GPU_WORK:-$here/work}
export HIGHWATER_KERNEL_CACHE=${HIGHWATER_KERNEL_CACHE:-$here/kernels}
exec "$python" "$here/run.py" "$@"
