// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Relaxed ordering of an adapter that makes use of it: the time at which written data may be seen
#include "softverbs/fixture.h"

#include <sys/mman.h>

namespace
{

using namespace sv;

class Relaxed : public PairTest
{
  protected:
    static constexpr size_t kLen = 8192;
    std::vector<char> far_ = std::vector<char>(4 * kLen);
    ibv_mr *mr_ = nullptr;

    void begin()
    {
        start("profile roce\nset relaxed_ordering 2");
        mr_ = b->reg(far_.data(), far_.size(), kAll | IBV_ACCESS_RELAXED_ORDERING);
        ASSERT_NE(nullptr, mr_);
        a->fill(1, kLen);
    }
    void TearDown() override
    {
        if (mr_) {
            EXPECT_EQ(0, lib().ibv_dereg_mr(mr_));
        }
        PairTest::TearDown();
    }
    uint64_t at(size_t off) const
    {
        return reinterpret_cast<uintptr_t>(far_.data()) + off;
    }
    void write(ibv_wr_opcode op, uint64_t to, uint32_t rkey)
    {
        ASSERT_EQ(0, a->post(op, 0, kLen, 1, to, rkey));
        ASSERT_EQ(IBV_WC_SUCCESS, a->wait().status);
    }
    bool come(size_t off) const
    {
        return memcmp(&far_[off], a->buf, kLen) == 0;
    }
    static std::string stat()
    {
        char text[512] = "";
        EXPECT_EQ(0, lib().sv_command("stat", text, sizeof(text)));
        return text;
    }
};

TEST_F(Relaxed, ALaterWriteIsSeenFirst)
{
    begin();
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    write(IBV_WR_RDMA_WRITE, b->addr(), b->mr->rkey);
    EXPECT_EQ(0, memcmp(b->buf, a->buf, kLen));
    EXPECT_FALSE(come(0));
    EXPECT_NE(std::string::npos, stat().find(" relaxed=1")) << stat();
    EXPECT_EQ(0, command("release"));
    EXPECT_TRUE(come(0));
}

TEST_F(Relaxed, ACompletionShowsAllBeforeIt)
{
    begin();
    ASSERT_EQ(0, b->recv(0, 0, 7));
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    write(IBV_WR_RDMA_WRITE, at(kLen), mr_->rkey);
    EXPECT_FALSE(come(0) || come(kLen));
    write(IBV_WR_RDMA_WRITE_WITH_IMM, at(2 * kLen), mr_->rkey);
    ASSERT_EQ(IBV_WC_SUCCESS, b->wait().status);
    EXPECT_TRUE(come(0) && come(kLen) && come(2 * kLen));
}

// rdma-core: "back-to-back network writes that target the same memory region leave it in an unknown state".
TEST_F(Relaxed, OfTwoWritesToOnePlaceEitherMayStay)
{
    begin();
    ASSERT_EQ(0, b->recv(0, 0, 7));
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    std::vector<char> first(a->buf, a->buf + kLen);
    a->fill(2, kLen);
    write(IBV_WR_RDMA_WRITE_WITH_IMM, at(0), mr_->rkey);
    ASSERT_EQ(IBV_WC_SUCCESS, b->wait().status);
    EXPECT_EQ(0, memcmp(first.data(), far_.data(), kLen));
}

TEST_F(Relaxed, AReadPushesWhatWasWrittenBefore)
{
    begin();
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    EXPECT_FALSE(come(0));
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_READ, kLen, 1, 2, b->addr(), b->mr->rkey));
    ASSERT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_TRUE(come(0));
}

// A completion goes to host memory, and so flushes no writes to a GPU.
TEST_F(Relaxed, GpuMemoryNeedsAReadOfIt)
{
    begin();
    int fd = memfd_create("gpu", 0);
    ASSERT_EQ(0, ftruncate(fd, kLen));
    auto *gpu = static_cast<char *>(mmap(nullptr, kLen, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ASSERT_NE(MAP_FAILED, gpu);
    ibv_mr *mr =
        lib().ibv_reg_dmabuf_mr(b->pd, 0, kLen, 0x10000, fd, kAll | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(nullptr, mr) << strerror(errno);
    ASSERT_EQ(0, b->recv(0, 0, 7));
    write(IBV_WR_RDMA_WRITE_WITH_IMM, 0x10000, mr->rkey);
    ASSERT_EQ(IBV_WC_SUCCESS, b->wait().status);
    EXPECT_NE(0, memcmp(gpu, a->buf, kLen));
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_READ, kLen, 1, 2, b->addr(), b->mr->rkey));
    ASSERT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_NE(0, memcmp(gpu, a->buf, kLen)) << "a READ of host memory";
    ASSERT_EQ(0, a->post(IBV_WR_RDMA_READ, kLen, 1, 2, 0x10000 + kLen - 1, mr->rkey));
    ASSERT_EQ(IBV_WC_SUCCESS, a->wait().status);
    EXPECT_EQ(0, memcmp(gpu, a->buf, kLen));
    EXPECT_EQ(0, lib().ibv_dereg_mr(mr));
    munmap(gpu, kLen);
    close(fd);
}

TEST_F(Relaxed, AnEndLandsWhatWasHeld)
{
    begin();
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    write(IBV_WR_RDMA_WRITE, at(kLen), mr_->rkey);
    EXPECT_FALSE(come(0) || come(kLen));
    ASSERT_EQ(0, b->to(IBV_QPS_ERR));
    EXPECT_TRUE(come(0) && come(kLen));
    join();
    write(IBV_WR_RDMA_WRITE, at(2 * kLen), mr_->rkey);
    EXPECT_FALSE(come(2 * kLen));
    EXPECT_EQ(0, lib().ibv_dereg_mr(mr_));
    mr_ = nullptr;
    EXPECT_TRUE(come(2 * kLen));
}

TEST_F(Relaxed, SomeKeepTheOrderAndSomeRefuse)
{
    begin();
    ASSERT_EQ(0, command("set relaxed_ordering 1"));
    write(IBV_WR_RDMA_WRITE, at(0), mr_->rkey);
    EXPECT_TRUE(come(0));
    int fd = memfd_create("gpu", 0);
    ASSERT_EQ(0, ftruncate(fd, kLen));
    for (int how : {3, 4}) {
        ASSERT_EQ(0, command("set relaxed_ordering " + std::to_string(how)));
        EXPECT_EQ(nullptr, lib().ibv_reg_dmabuf_mr(b->pd, 0, kLen, 0x10000, fd,
                                                   kAll | IBV_ACCESS_RELAXED_ORDERING));
        EXPECT_EQ(EINVAL, errno);
        ibv_mr *mr = b->reg(far_.data(), kLen, kAll | IBV_ACCESS_RELAXED_ORDERING);
        EXPECT_EQ(how == 3, mr == nullptr);
        if (mr) {
            EXPECT_EQ(0, lib().ibv_dereg_mr(mr));
        }
        mr = lib().ibv_reg_dmabuf_mr(b->pd, 0, kLen, 0x10000, fd, kAll);
        ASSERT_NE(nullptr, mr) << "without it all is as ever";
        EXPECT_EQ(0, lib().ibv_dereg_mr(mr));
    }
    close(fd);
}

} // namespace
