#!/usr/bin/env bash
# Installs a stock PyTorch that runs without a GPU: the stand-in in DIR/lib, PyTorch in DIR/venv, a launcher DIR/python.
#
#     tests/pytorch/install.sh DIR VERSION     such as: tests/pytorch/install.sh /tmp/torch 2.15.0
#
# Needs Linux, a C compiler, python3 with venv, and 5.5 GB of disk. An existing DIR is completed or updated.
set -euo pipefail

fail() {
  echo "error: $*" >&2
  exit 1
}

[ $# = 2 ] || fail "expected a folder and a version of PyTorch, such as: $0 /tmp/torch 2.15.0"
[ "$(uname -s)" = Linux ] || fail "cannot build the stand-in: it replaces CUDA's libraries on Linux only"
mkdir -p "$1/lib" || fail "cannot create $1/lib"
folder=$(cd "$1" && pwd)
version=$2
sources=$(cd "$(dirname "$0")" && pwd)
# LD_PRELOAD separates libraries by spaces and colons.
case $folder in
*[[:space:]:]*) fail "cannot install into '$folder': the path has a space or a colon; choose another folder" ;;
esac

# library NAME SOURCE...: builds a library that is found under NAME.
library() {
  local name=$1
  shift
  (cd "$sources" && cc -std=c11 -O2 -Wall -Wextra -Wno-unused-parameter -shared -fPIC -Wl,-soname,"$name" \
    -o "$folder/lib/$name" "$@" -ldl -lpthread) || fail "cannot build $name: cc failed; install a C compiler"
}
# libcuda.so.1 has the runtime and the libraries too, and is preloaded. PyTorch gets the same one when it opens the
# driver, so cudaMalloc and cuMemCreate count towards one total.
library libcuda.so.1 device.c memory.c streams.c kernels.c driver.c libraries.c
library libnvidia-ml.so.1 nvml.c
ln -sf libcuda.so.1 "$folder/lib/libcuda.so" # for -lcuda, with which Triton compiles

[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv" ||
  fail "cannot create $folder/venv: python3 has no venv module; install python3-venv"
packages=("torch==$version" pytest)
case $version in 2.6.*) packages+=("numpy<3") ;; esac
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" ||
  fail "cannot install PyTorch $version: see the message of pip above"

# Workspaces of cuBLAS are off so that two versions of PyTorch allocate the same for the same program.
cat >"$folder/python" <<LAUNCHER
#!/usr/bin/env bash
# Runs Python with PyTorch $version and the stand-in for CUDA.
export LD_LIBRARY_PATH=$folder/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_PRELOAD=$folder/lib/libcuda.so.1\${LD_PRELOAD:+:\$LD_PRELOAD}
export CUBLAS_WORKSPACE_CONFIG=\${CUBLAS_WORKSPACE_CONFIG-:0:0} CUBLASLT_WORKSPACE_SIZE=\${CUBLASLT_WORKSPACE_SIZE-0}
export OMP_NUM_THREADS=\${OMP_NUM_THREADS-1} TORCHINDUCTOR_COMPILE_THREADS=\${TORCHINDUCTOR_COMPILE_THREADS-1}
exec $folder/venv/bin/python "\$@"
LAUNCHER
chmod +x "$folder/python"

"$folder/python" -W ignore -c 'import torch; torch.ones(2, device="cuda").sum().item()' ||
  fail "PyTorch $version does not run with the stand-in; the versions that do are 2.15.0 and 2.6.0"
echo "$folder/python runs Python with PyTorch $version, and device=\"cuda\" without a GPU"
