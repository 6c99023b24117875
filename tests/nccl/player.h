// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Between the double of the CUDA runtime and the library that executes the kernels of one version of NCCL. */
#pragma once
#include <stddef.h>

/* Executes kernel NAME with GRID blocks; ARGS are its packed arguments. Returns 0 when the kernel has ended, anything
 * else where this kernel is not one that can be executed. */
typedef int (*play_kernel_t)(const char *name, unsigned grid, unsigned block, const void *args,
                             size_t bytes);
