// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// GPU memory on softverbs: the double of the CUDA driver says which memory belongs to a GPU, and
// copies it.
#include "softverbs/fixture.h"
#include "support/fakecuda_fixture.h"

#include <sys/mman.h>

namespace
{

using namespace sv;

constexpr size_t kMiB = 1 << 20;

class Cuda : public FakeCuda
{
  protected:
    End *a = nullptr, *b = nullptr;

    void start(const char *more = "")
    {
        setenv("PVN_SOFTVERBS_CUDA_LIB", fakecuda_path().c_str(), 1);
        ASSERT_EQ(0, sv::lib().sv_configure((std::string("profile cuda\n") + more).c_str()));
        a = new End;
        b = new End;
        a->create();
        b->create();
        ASSERT_EQ(0, a->connect(b->address()));
        ASSERT_EQ(0, b->connect(a->address()));
    }
    void TearDown() override
    {
        stop();
        FakeCuda::TearDown(); // no context may be held any more
    }
    void stop()
    {
        delete a;
        delete b;
        a = b = nullptr;
    }
    int copies_in() const
    {
        return fake->calls("cuMemcpyHtoDAsync_v2");
    }
    int copies_out() const
    {
        return fake->calls("cuMemcpyDtoHAsync_v2");
    }
    ibv_mr *reg_dmabuf(End *e, uint64_t addr, size_t len)
    {
        int fd = -1;
        EXPECT_EQ(0, pvn_cuda_export(cu, 0, addr, len, false, &fd, &why)) << why.reason[0];
        ibv_mr *mr = sv::lib().ibv_reg_dmabuf_mr(e->pd, 0, len, addr, fd, kAll);
        close(fd);
        return mr;
    }
};

TEST_F(Cuda, WritesAndReadsAreCopiesOfTheDriver)
{
    start();
    uint64_t v = fake->vmm_reserve(8 * kMiB);
    fake->vmm_map(v, 2 * kMiB, 0);
    fake->vmm_map(v + 2 * kMiB, 2 * kMiB, 0);
    ibv_mr *mr = reg_dmabuf(b, v, 4 * kMiB);
    ASSERT_NE(nullptr, mr);
    int in = copies_in(), out = copies_out();
    a->fill(3, End::kSize);
    uint64_t to = v + 2 * kMiB - 5000; // across the border of two mappings
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_WRITE, 0, 100000, 1, to, mr->rkey));
    EXPECT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_EQ(0, memcmp(a->buf, reinterpret_cast<void *>(to), 100000));
    EXPECT_EQ(2, copies_in() - in) << "one for each segment";
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_READ, 500000, 100000, 2, to, mr->rkey));
    EXPECT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_EQ(0, memcmp(a->buf, a->buf + 500000, 100000));
    EXPECT_EQ(2, copies_out() - out);
    EXPECT_EQ(0, sv::lib().ibv_dereg_mr(mr));
    in = copies_in();
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_WRITE, 0, 100000, 3, b->addr(), b->mr->rkey));
    EXPECT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_EQ(in, copies_in()) << "host memory is not the driver's business";
}

TEST_F(Cuda, AddressesNeedAPeerMemoryClient)
{
    start();
    uint64_t d = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 512);
    errno = 0;
    EXPECT_EQ(nullptr, b->reg(reinterpret_cast<void *>(d), kMiB, kAll));
    EXPECT_EQ(EFAULT, errno);
    stop();
    start("set peer_memory 1");
    ibv_mr *mr = b->reg(reinterpret_cast<void *>(d), kMiB, kAll);
    ASSERT_NE(nullptr, mr);
    EXPECT_EQ(0, sv::lib().ibv_dereg_mr(mr));
}

TEST_F(Cuda, AShortDescriptorIsRefused)
{
    start();
    uint64_t d = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    int fd = memfd_create("short", MFD_CLOEXEC);
    ASSERT_EQ(0, ftruncate(fd, 4096));
    errno = 0;
    EXPECT_EQ(nullptr, sv::lib().ibv_reg_dmabuf_mr(b->pd, 0, kMiB, d, fd, kAll));
    EXPECT_EQ(EINVAL, errno);
    close(fd);
    EXPECT_EQ(nullptr, sv::lib().ibv_reg_dmabuf_mr(b->pd, 0, kMiB, d, fd, kAll));
    EXPECT_EQ(EBADF, errno);
}

// A registration that the driver cannot serve fails at once, not with the first bytes.
TEST_F(Cuda, ADriverThatCannotCopyIsNoticedAtRegistration)
{
    start("set peer_memory 1");
    uint64_t d = fake->alloc(FAKECUDA_DEVICE, 0, kMiB, 65536);
    fake->fail("cuMemcpyDtoHAsync_v2", 1, PVN_CU_UNKNOWN);
    EXPECT_EQ(nullptr, b->reg(reinterpret_cast<void *>(d), kMiB, kAll));
    EXPECT_EQ(1, fake->fired("cuMemcpyDtoHAsync_v2"));
    fake->fail("cuDevicePrimaryCtxRetain", 1, PVN_CU_UNKNOWN);
    EXPECT_EQ(nullptr, b->reg(reinterpret_cast<void *>(d), kMiB, kAll));
    EXPECT_EQ(1, fake->fired("cuDevicePrimaryCtxRetain"));
    ibv_mr *mr = b->reg(reinterpret_cast<void *>(d), kMiB, kAll);
    ASSERT_NE(nullptr, mr);
    EXPECT_EQ(0, sv::lib().ibv_dereg_mr(mr));
}

} // namespace
