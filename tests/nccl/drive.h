// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of nccldrive, which drives NCCL through its public interface and checks
 * every byte. */
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace drive
{

/* The command line, equal for all ranks */
struct Options {
    int ranks = 2;
    int threads = 1; /* ranks of one process, each with a device of its own */
    int rank = -1;   /* this process's (first) rank; -1: start all ranks as children */
    int iters = 3, warmup = 1;
    int queued = 1; /* times that an operation is put on the stream before the first may begin */
    int traffic_class = -1; /* of the communicator's configuration; -1: NCCL's default */
    int stop_ms = 50; /* stopped_init: when the last rank stops, after it began to initialise */
    int pause_ms = 0; /* behind each test, as a training step computes */
    bool registered = false; /* user buffers are registered with the communicator */
    std::string id_file;     /* where rank 0 leaves NCCL's unique id for the others */
    std::vector<size_t> sizes;
};
extern Options opt;

/* One rank. The ranks of a process are its threads. */
struct Rank {
    int rank = 0, ranks = 0, iters = 0, warmup = 0;
    int ids_shared = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::map<void *, void *> handles; /* buffer -> registration */
};
extern thread_local Rank me;

double now();
/* Prints one line with the rank's number in one write, so that lines of several ranks do not mix. */
__attribute__((format(printf, 1, 2))) void line(const char *format, ...);
void check_nccl(ncclResult_t r, const char *what, const char *file, int at);
void check_cuda(cudaError_t e, const char *what, const char *file, int at);
#define NC(call) drive::check_nccl((call), #call, __FILE__, __LINE__)
#define CU(call) drive::check_cuda((call), #call, __FILE__, __LINE__)

/* Rank 0 creates a unique id and writes it to a file for the others. Each call uses another file. */
ncclUniqueId share_id();
ncclComm_t init_comm();
ncclConfig_t comm_config();
/* Waits for the stream as an application that watches its communicator does. An error of NCCL's
 * threads ends this process. */
void finish();

/* Returns device memory, which is registered with the communicator if --register is set. */
void *buffer(size_t bytes);
void release(void *p);

/* Returns an element of an operand. Sums of up to 64 ranks' values are exact in float32. */
float value(int rank, size_t i, int seed);
unsigned char byte_of(int from, int to, size_t i, int seed);

constexpr size_t kRight = ~size_t(0);
/* Runs warmup + iters rounds of one operation. FILL, GO and CHECK get the round's number. GO puts
 * the operation on the stream, once or --queued times. CHECK returns the index of the first wrong
 * element, or kRight. Prints the operation's time in the best round, or ends the process if an
 * element is wrong. FACTOR: bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
void measure(const char *name, size_t bytes, double factor, const std::function<void(int)> &fill,
             const std::function<void(int)> &go, const std::function<size_t(int)> &check);

/* A process's resources, which tests compare before and after */
struct Holdings {
    long fds, threads, stats_maps, stats_files, rss_kb;
};
Holdings holdings();

/* Each returns false if NAME is not one of its tests. */
bool run_collective(const std::string &name);
bool run_life(const std::string &name);

void test_allreduce(bool in_place);
void test_sendrecv();

} // namespace drive
