// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Zero copies between NCCL's buffers and the socket. Where an adapter cannot reach a GPU, NCCL
// stages its data in pinned host buffers. The plugin then copies nothing at either end: it gives
// NCCL's own buffers to the kernel. The test watches every send and receive call of the process.
#include "abi/nccl_side.h"
#include "support/next_symbol.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>

using namespace nccl;

namespace
{

struct Range {
    std::atomic<uintptr_t> begin{0}, end{0};
    std::atomic<size_t> bytes{0}; // that calls have moved from or to it

    void watch(const void *p, size_t n)
    {
        begin = reinterpret_cast<uintptr_t>(p);
        end = begin + n;
        bytes = 0;
    }
    // Counts the bytes that a call has moved to or from this range. The call fills its pieces in
    // order.
    void count(const iovec *iov, size_t n, ssize_t moved)
    {
        for (size_t i = 0; i < n && moved > 0; i++) {
            auto at = reinterpret_cast<uintptr_t>(iov[i].iov_base);
            size_t part = std::min(iov[i].iov_len, static_cast<size_t>(moved));
            if (at >= begin && at + part <= end)
                bytes += part;
            moved -= static_cast<ssize_t>(part);
        }
    }
};
Range sent, received;

} // namespace

// The plugin's calls arrive here, because the program comes before the C library in symbol lookup.
extern "C" {
__attribute__((visibility("default"))) ssize_t send(int fd, const void *p, size_t n, int flags)
{
    static auto real = next_symbol<decltype(&send)>("send");
    ssize_t rc = real(fd, p, n, flags);
    iovec iov = {const_cast<void *>(p), n};
    sent.count(&iov, 1, rc);
    return rc;
}
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr *m, int flags)
{
    static auto real = next_symbol<decltype(&sendmsg)>("sendmsg");
    ssize_t rc = real(fd, m, flags);
    sent.count(m->msg_iov, m->msg_iovlen, rc);
    return rc;
}
__attribute__((visibility("default"))) ssize_t recv(int fd, void *p, size_t n, int flags)
{
    static auto real = next_symbol<decltype(&recv)>("recv");
    ssize_t rc = real(fd, p, n, flags);
    iovec iov = {p, n};
    received.count(&iov, 1, rc);
    return rc;
}
__attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr *m, int flags)
{
    static auto real = next_symbol<decltype(&recvmsg)>("recvmsg");
    ssize_t rc = real(fd, m, flags);
    received.count(m->msg_iov, m->msg_iovlen, rc);
    return rc;
}
}

namespace
{

TEST(ZeroCopy, TcpGivesTheKernelNcclsOwnBuffers)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    const size_t size = 16 << 20;
    std::vector<unsigned char> src(size), dst(size);
    for (size_t i = 0; i < size; i++)
        src[i] = static_cast<unsigned char>(i * 7 + (i >> 12));
    void *smh = nullptr, *rmh = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.sc, src.data(), size, NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), size, NCCL_PTR_HOST, &rmh));
    sent.watch(src.data(), size);
    received.watch(dst.data(), size);
    void *sr = nullptr, *rr = nullptr, *data = dst.data();
    size_t want = size;
    int tag = 0, sd = 0, rd = 0;
    ASSERT_TRUE(eventually([&] {
        if (!rr) { // posted first, as NCCL does, because data without a buffer wait in the kernel
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_irecv(p.d, p.rc, 1, &data, &want, &tag, &rmh, nullptr, &rr));
        }
        if (!sr) {
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_isend(p.d, p.sc, src.data(), size, 0, smh, nullptr, &sr));
        }
        if (sr && !sd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sr, &sd, nullptr));
        }
        if (rr && !rd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rr, &rd, nullptr));
        }
        return (sd && rd) || HasFailure();
    }));
    EXPECT_EQ(src, dst);
    EXPECT_EQ(size, sent.bytes) << "bytes that the kernel took out of the caller's buffer";
    // Data behind a header in the same read are copied: a small part of each chunk.
    printf("received in place: %zu of %zu bytes\n", received.bytes.load(), size);
    EXPECT_GE(received.bytes, size - size / 10);
}

} // namespace
