# SPDX-License-Identifier: Apache-2.0
# Sourced by .ci/run, from the project's root, after packages.sh: a CUDA toolkit with NCCL for the tests that need no GPU.

has_cuda() {  # has_cuda FOLDER: nvcc is in it; NCCL is, or beside it, or in the system
  [ -x "$1/bin/nvcc" ] && ls "$1/include/nccl.h" "$1/../nccl/include/nccl.h" /usr/include/nccl.h /usr/local/include/nccl.h 2>/dev/null | grep -q .
}

# The machine's, or one of pinned wheels in build-cuda/, made once; CUDA_PATH names it. Fails where there is neither.
cuda_toolkit() {
  local wheels=tools/lib/cuda/wheels.txt made=$PWD/build-cuda
  has_cuda "${CUDA_PATH:-${CUDA_HOME:-${CUDA_ROOT:-/usr/local/cuda}}}" && return 0
  unset CUDA_HOME CUDA_ROOT
  export CUDA_PATH=$made/nvidia/cu13
  cmp -s "$wheels" "$made/wheels.txt" && return 0
  echo "making a CUDA toolkit of wheels in build-cuda/"
  python3 -m pip --version >/dev/null 2>&1 || need python3-pip || return 1
  rm -rf "$made"
  python3 -m pip install --quiet --root-user-action=ignore --no-deps --only-binary :all: --require-hashes --target "$made" --requirement "$wheels" || return 1
  ln -s lib "$CUDA_PATH/lib64" && ln -s libcudart.so.13 "$CUDA_PATH/lib/libcudart.so" || return 1  # names that linkers ask for
  has_cuda "$CUDA_PATH" && cp "$wheels" "$made/"
}

# The headers of the oldest CUDA and NCCL and of the newest, of pinned wheels, in build-cuda-headers/oldest and newest; made once. Fails
# where they can't be had.
cuda_headers() {
  local age wheels made
  for age in oldest newest; do
    wheels=tools/lib/cuda/$age.txt made=$PWD/build-cuda-headers/$age
    cmp -s "$wheels" "$made/wheels.txt" && continue
    echo "taking headers of wheels to build-cuda-headers/$age"
    python3 -m pip --version >/dev/null 2>&1 || need python3-pip || return 1
    rm -rf "$made" && mkdir -p "$made/include" || return 1
    python3 -m pip install --quiet --root-user-action=ignore --no-deps --only-binary :all: --require-hashes --target "$made/wheels" --requirement "$wheels" || return 1
    cp -r "$made"/wheels/nvidia/*/include/. "$made/include/" && rm -rf "$made/wheels" || return 1
    [ -f "$made/include/nccl.h" ] && [ -f "$made/include/cuda.h" ] && [ -d "$made/include/crt" ] && cp "$wheels" "$made/" && mv "$made/$age.txt" "$made/wheels.txt" || return 1
  done
}
