// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* nccldrive: collectives and point-to-point operations, with every element checked */
#include "nccl/drive.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>

using namespace drive;

namespace
{

float sum_at(size_t i, int seed)
{
    float sum = 0;
    for (int r = 0; r < me.ranks; r++)
        sum += value(r, i, seed);
    return sum;
}

size_t check_sums(const float *got, size_t n, size_t first, int seed)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != sum_at(first + i, seed))
            return i;
    return kRight;
}

size_t check_bytes(const unsigned char *got, size_t n, int from, int to, int seed)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != byte_of(from, to, i, seed))
            return i;
    return kRight;
}

void fill_values(float *p, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = value(me.rank, i, seed);
}

void fill_bytes(unsigned char *p, size_t n, int to, int seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte_of(me.rank, to, i, seed);
}

template <class T> T *elements(size_t n)
{
    return static_cast<T *>(buffer(n * sizeof(T)));
}

double share()
{
    return double(me.ranks - 1) / me.ranks;
}

/* Rank 0 sends to one rank after the other, never in a group with a receive. */
void test_oneway()
{
    for (size_t bytes : opt.sizes) {
        auto *b = elements<unsigned char>(bytes);
        measure(
            "oneway", bytes, 1, [](int) {},
            [&](int k) {
                if (me.rank) {
                    NC(ncclRecv(b, bytes, ncclUint8, 0, me.comm, me.stream));
                    return finish();
                }
                for (int to = 1; to < me.ranks; to++) {
                    fill_bytes(b, bytes, to, k);
                    NC(ncclSend(b, bytes, ncclUint8, to, me.comm, me.stream));
                    finish();
                }
            },
            [&](int k) { return me.rank ? check_bytes(b, bytes, 0, me.rank, k) : kRight; });
        release(b);
    }
}

/* LATE: one rank after the other begins later than all others. Their messages to a third rank
 * wait meanwhile. */
void test_alltoall(bool late)
{
    for (size_t bytes : opt.sizes) {
        size_t each = std::max<size_t>(bytes / me.ranks, 1);
        auto *in = elements<unsigned char>(each * me.ranks);
        auto *out = elements<unsigned char>(each * me.ranks);
        measure(
            late ? "alltoall_late" : "alltoall", each * me.ranks, share(),
            [&](int k) {
                memset(out, 0xee, each * me.ranks);
                for (int r = 0; r < me.ranks; r++)
                    fill_bytes(in + r * each, each, r, k);
            },
            [&](int k) {
                if (late && me.rank == k % me.ranks)
                    usleep(200000);
                NC(ncclGroupStart());
                for (int r = 0; r < me.ranks; r++) {
                    NC(ncclSend(in + r * each, each, ncclUint8, r, me.comm, me.stream));
                    NC(ncclRecv(out + r * each, each, ncclUint8, r, me.comm, me.stream));
                }
                NC(ncclGroupEnd());
            },
            [&](int k) {
                for (int r = 0; r < me.ranks; r++) {
                    size_t wrong = check_bytes(out + r * each, each, r, me.rank, k);
                    if (wrong != kRight)
                        return r * each + wrong;
                }
                return kRight;
            });
        release(in);
        release(out);
    }
}

void test_allgather()
{
    for (size_t bytes : opt.sizes) {
        size_t each = std::max<size_t>(bytes / me.ranks, 1);
        auto *in = elements<unsigned char>(each);
        auto *out = elements<unsigned char>(each * me.ranks);
        measure(
            "allgather", each * me.ranks, share(), [&](int k) { fill_bytes(in, each, 0, k); },
            [&](int) { NC(ncclAllGather(in, out, each, ncclUint8, me.comm, me.stream)); },
            [&](int k) {
                for (int r = 0; r < me.ranks; r++) {
                    size_t wrong = check_bytes(out + r * each, each, r, 0, k);
                    if (wrong != kRight)
                        return r * each + wrong;
                }
                return kRight;
            });
        release(in);
        release(out);
    }
}

void test_reducescatter()
{
    for (size_t bytes : opt.sizes) {
        size_t each = std::max<size_t>(bytes / sizeof(float) / me.ranks, 1);
        size_t all = each * me.ranks;
        auto *in = elements<float>(all);
        auto *out = elements<float>(each);
        measure(
            "reducescatter", all * sizeof(float), share(), [&](int k) { fill_values(in, all, k); },
            [&](int) {
                NC(ncclReduceScatter(in, out, each, ncclFloat, ncclSum, me.comm, me.stream));
            },
            [&](int k) { return check_sums(out, each, me.rank * each, k); });
        release(in);
        release(out);
    }
}

void test_broadcast()
{
    for (size_t bytes : opt.sizes) {
        auto *in = elements<unsigned char>(bytes);
        auto *out = elements<unsigned char>(bytes);
        measure(
            "broadcast", bytes, 1, [&](int k) { fill_bytes(in, bytes, k % me.ranks, k); },
            [&](int k) {
                NC(ncclBroadcast(in, out, bytes, ncclUint8, k % me.ranks, me.comm, me.stream));
            },
            [&](int k) { return check_bytes(out, bytes, k % me.ranks, k % me.ranks, k); });
        release(in);
        release(out);
    }
}

void test_reduce()
{
    for (size_t bytes : opt.sizes) {
        size_t n = std::max<size_t>(bytes / sizeof(float), 1);
        auto *in = elements<float>(n), *out = elements<float>(n);
        measure(
            "reduce", n * sizeof(float), 1, [&](int k) { fill_values(in, n, k); },
            [&](int k) {
                NC(ncclReduce(in, out, n, ncclFloat, ncclSum, k % me.ranks, me.comm, me.stream));
            },
            [&](int k) { return me.rank == k % me.ranks ? check_sums(out, n, 0, k) : kRight; });
        release(in);
        release(out);
    }
}

} // namespace

namespace drive
{

void test_allreduce(bool in_place)
{
    if (in_place && opt.queued > 1) {
        line("FAIL allreduce_ip: --queued %d would sum its own results", opt.queued);
        _exit(2);
    }
    for (size_t bytes : opt.sizes) {
        size_t n = std::max<size_t>(bytes / sizeof(float), 1);
        auto *in = elements<float>(n), *out = in_place ? in : elements<float>(n);
        measure(
            in_place ? "allreduce_ip" : "allreduce", n * sizeof(float), 2 * share(),
            [&](int k) { fill_values(in, n, k); },
            [&](int) { NC(ncclAllReduce(in, out, n, ncclFloat, ncclSum, me.comm, me.stream)); },
            [&](int k) { return check_sums(out, n, 0, k); });
        release(in);
        if (!in_place)
            release(out);
    }
}

/* Sends to the next rank and receives from the previous one. */
void test_sendrecv()
{
    int to = (me.rank + 1) % me.ranks, from = (me.rank + me.ranks - 1) % me.ranks;
    for (size_t bytes : opt.sizes) {
        auto *in = elements<unsigned char>(bytes), *out = elements<unsigned char>(bytes);
        measure(
            "sendrecv", bytes, 1, [&](int k) { fill_bytes(in, bytes, to, k); },
            [&](int) {
                NC(ncclGroupStart());
                NC(ncclSend(in, bytes, ncclUint8, to, me.comm, me.stream));
                NC(ncclRecv(out, bytes, ncclUint8, from, me.comm, me.stream));
                NC(ncclGroupEnd());
            },
            [&](int k) { return check_bytes(out, bytes, from, me.rank, k); });
        release(in);
        release(out);
    }
}

bool run_collective(const std::string &name)
{
    static const std::map<std::string, std::function<void()>> tests = {
        {"allreduce", [] { test_allreduce(false); }},
        {"allreduce_ip", [] { test_allreduce(true); }},
        {"sendrecv", test_sendrecv},
        {"oneway", test_oneway},
        {"alltoall", [] { test_alltoall(false); }},
        {"alltoall_late", [] { test_alltoall(true); }},
        {"allgather", test_allgather},
        {"reducescatter", test_reducescatter},
        {"broadcast", test_broadcast},
        {"reduce", test_reduce},
    };
    auto it = tests.find(name);
    if (it == tests.end())
        return false;
    it->second();
    return true;
}

} // namespace drive
