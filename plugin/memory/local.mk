# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/memory: registration cache, GPU memory, CUDA shim.
libpvn_core_la_SOURCES += \
    plugin/memory/cuda_abi.h \
    plugin/memory/cuda_shim.c \
    plugin/memory/cuda_shim.h \
    plugin/memory/gpucopy.c \
    plugin/memory/gpucopy.h \
    plugin/memory/gpumem.c \
    plugin/memory/gpumem.h \
    plugin/memory/gpumem_policy.c \
    plugin/memory/memcache.c \
    plugin/memory/memcache.h
