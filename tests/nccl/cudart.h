// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the double of libcudart.so.13. README.md says what the double is and
 * which faults it cannot show. Its functions have the signatures of NVIDIA's public headers,
 * which are included. */
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

namespace cudart_double
{

/* Returns the integer in environment variable NAME, or OTHERWISE if it is unset or empty. */
long env_long(const char *name, long otherwise);
/* Prints one line on stderr, with the process's number. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Remembers E for cudaGetLastError and returns it. */
cudaError_t fail(cudaError_t e);
/* Reports on stderr that NAME was called and does not exist here, and fails with
 * cudaErrorNotSupported. */
cudaError_t lacking(const char *name);

int device_count();
extern thread_local int current_device;

/* An allocation, or a range of the application's memory that it registered. */
struct Block {
    size_t bytes = 0;  /* as requested */
    size_t mapped = 0; /* including the guard page behind it; 0: registered, not allocated here */
    cudaMemoryType type = cudaMemoryTypeUnregistered;
    int device = 0;
};

/* Finds the block that holds P. False if there is none. */
bool find_block(const void *p, uintptr_t *base, Block *b);
size_t device_bytes_allocated();

/* Queues a kernel on STREAM; its packed arguments are copied before this returns. */
cudaError_t launch(const void *fn, unsigned grid, unsigned block, const void *args, size_t bytes,
                   cudaStream_t stream);

} // namespace cudart_double
