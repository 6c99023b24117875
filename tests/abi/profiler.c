/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* This symbol makes a library a profiler of NCCL. The tests call the callback themselves. */
extern const int ncclProfiler_v5;
__attribute__((visibility("default"))) const int ncclProfiler_v5 = 5;
