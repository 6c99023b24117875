# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by scripts that run a real NCCL on the double of the CUDA runtime (README.md). It checks the requirements,
# compiles the double for the NCCL at hand, and sets the environment without which NCCL would look for a GPU. The
# caller sets src (the plugin's source tree), build, nccl_src, nccl_build and tmp, a directory for compiled files.
double_dir=$src/tests/nccl
cuda=${CUDA_HOME:-/usr/local/cuda}

# double_check: returns 1 and prints the missing requirement in a line if the double cannot be made
double_check() {
    local f
    [[ -n $nccl_src && -n $nccl_build ]] || { echo "no NCCL was named (--nccl-src, --nccl-build)"; return 1; }
    [[ -r $nccl_src/src/include/device.h ]] ||
        { echo "$nccl_src is no NCCL source tree: src/include/device.h is not there"; return 1; }
    for f in include/nccl.h lib/libnccl.so obj/device/gensrc/host_table.cc; do
        [[ -r $nccl_build/$f ]] || { echo "$nccl_build has no $f"; return 1; }
    done
    readelf -d "$nccl_build/lib/libnccl.so" | grep -q 'NEEDED.*libcudart' ||
        { echo "$nccl_build/lib/libnccl.so is linked against the static CUDA runtime, which cannot be doubled"; return 1; }
    [[ -r $cuda/include/cuda_runtime_api.h ]] || { echo "no CUDA headers in $cuda/include (CUDA_HOME)"; return 1; }
    [[ -r $build/.libs/libnccl-net-pvrdma.so ]] || { echo "the plugin is not built in $build"; return 1; }
}

# double_compile: makes libcudart.so.13, libcuda.so.1 (in driver/, for users that name it), libnvidia-ml.so.1,
# libncclplayer.so and nccldrive in $tmp
double_compile() {
    local cxx="${CXX:-g++} -std=c++17 -O2 -g -Wall -Wextra -I$src/tests -idirafter $cuda/include"
    # shellcheck disable=SC2086
    $cxx -fPIC -shared -Wl,-soname,libcudart.so.13 -Wl,--version-script="$double_dir/cudart.map" "$double_dir"/cudart_*.cc \
        -o "$tmp/libcudart.so.13" -ldl -lpthread || return 1
    mkdir -p "$tmp/driver"
    # shellcheck disable=SC2086
    $cxx -fPIC -shared -fvisibility=hidden -Wl,-soname,libcuda.so.1 "$double_dir/libcuda.cc" -o "$tmp/driver/libcuda.so.1" \
        -L"$tmp" -l:libcudart.so.13 || return 1
    ${CC:-gcc} -O2 -g -Wall -Wextra -fPIC -shared -Wl,-soname,libnvidia-ml.so.1 "$double_dir/nvml.c" \
        -o "$tmp/libnvidia-ml.so.1" || return 1
    sed -n 's|^/\* *[0-9]*\*/ \([0-9]*\), // \(.*\)$|{\1, "\2"},|p' \
        "$nccl_build/obj/device/gensrc/host_table.cc" >"$tmp/functable.h"
    # NCCL's headers are not written for these warnings.
    # shellcheck disable=SC2086
    $cxx -Wno-unused-function -Wno-unused-parameter -Wno-sign-compare -fPIC -shared -fvisibility=hidden -I"$tmp" \
        -I"$nccl_build/include" -I"$nccl_src/src/include" -I"$nccl_src/src/include/plugin" \
        -idirafter "$cuda/include/cccl" -DNCCL_OS_LINUX "$double_dir/player.cc" -o "$tmp/libncclplayer.so" || return 1
    # shellcheck disable=SC2086
    $cxx -DPVN_NCCL_SOURCE -I"$src" -I"$nccl_build/include" -I"$nccl_src/src/include" -I"$nccl_src/src/include/plugin" \
        -DNCCL_OS_LINUX -fsyntax-only -x c++ "$double_dir/values.h" || return 1
    # shellcheck disable=SC2086
    $cxx -I"$nccl_build/include" "$double_dir"/drive*.cc -o "$tmp/nccldrive" -L"$nccl_build/lib" -lnccl -L"$tmp" \
        -l:libcudart.so.13 -lpthread
}

# double_environment: sets double_env, the variables of a process with NCCL. Call it after the paths are absolute.
double_environment() {
    double_env=(
        LD_LIBRARY_PATH="$tmp:$nccl_build/lib:$build/.libs" NCCL_DEBUG=INFO
        NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_P2P_DISABLE=1
        NCCL_SHM_DISABLE=1 NCCL_PROTO=Simple NCCL_ALGO=Ring NCCL_P2P_LL_THRESHOLD=0 NCCL_RAS_ENABLE=0
    )
}
