// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The interface between the double of the CUDA runtime and the library that executes the kernels
 * of one version of NCCL */
#pragma once
#include <stddef.h>

/* Executes kernel NAME with GRID blocks. ARGS are its packed arguments. Returns 0 after the
 * kernel has ended, or another value if it cannot execute this kernel. */
typedef int (*play_kernel_t)(const char *name, unsigned grid, unsigned block, const void *args,
                             size_t bytes);
