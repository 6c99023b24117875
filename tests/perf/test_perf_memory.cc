// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf --memory, with a test double of the CUDA driver and without CUDA: the kinds of memory for message
// buffers, registration, flushes and copies, and how each of them fails.
#include <gtest/gtest.h>

#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "perf/rank/gpu.h"
#include "tests/perf/perf_run.h"

namespace
{

const std::string kCuda = PVN_BUILDDIR "/tests/support/.libs/libcuda.so.1";
const std::string kSoftverbs = PVN_BUILDDIR "/tests/softverbs/.libs/libsoftverbs.so";
// FAKECUDA_APP=1: pvn-perf itself is the application that uses CUDA.
const std::string kDouble = "FAKECUDA_APP=1 NCCL_PVRDMA_CUDA_LIB=" + kCuda + " ";
const std::string kNoCuda = "NCCL_PVRDMA_CUDA_LIB=/nowhere/libcuda.so.1 ";
// TESTNET_PTR is testnet's ptrSupport: 3 is host and GPU memory; 7 adds dmabuf descriptors.
const std::string kTakesGpu = kDouble + "TESTNET_PTR=3 ";
const std::string kTakesDmabuf = kDouble + "TESTNET_PTR=7 ";

std::string P2p(const std::string &more)
{
    return "p2p --plugin t=" + kTestnet +
           " --sizes 0,5,70000 --depth 4 --iters 20 --warmup 1 --check " + more;
}

// A field of the first result of a run with --json to standard output.
std::string FieldOf(const Outcome &o, const char *field)
{
    json_error_t e;
    json_t *doc = json_loads(o.out.c_str(), 0, &e);
    const char *s = json_string_value(
        json_object_get(json_array_get(json_object_get(doc, "results"), 0), field));
    std::string text = s ? s : "";

    json_decref(doc);
    return text;
}

bool Has(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

// Expects each part in standard output or standard error.
void ExpectSaid(const Outcome &o, const std::vector<std::string> &parts)
{
    for (auto &p : parts)
        EXPECT_TRUE(Has(o.out + o.err, p)) << p << " is not in\n" << o.out << o.err;
}

// ---- which memory ----

TEST(MemoryKind, WithCudaThePinnedMemoryIsItsOwn)
{
    for (const char *kind : {"", "--memory pinned "}) {
        Outcome o = Perf(P2p(kind + std::string("--json -")), kDouble);

        ASSERT_EQ(0, o.status) << o.err;
        EXPECT_EQ("pinned", FieldOf(o, "memory"));
        EXPECT_EQ("cudaHostAlloc, GPU 0, Fake GPU, 0000:0b:00.0", FieldOf(o, "memory_how"));
        ExpectSaid(o, {"messages lie in pinned memory (cudaHostAlloc, GPU 0"});
    }
}

TEST(MemoryKind, WithoutCudaItIsSaidWhatPinsIt)
{
    Outcome o = Perf(P2p("--json -"), kNoCuda);

    ASSERT_EQ(0, o.status) << o.err;
    if (FieldOf(o, "memory") == "movable")
        GTEST_SKIP() << "memory cannot be pinned here: " << o.err;
    EXPECT_EQ("io_uring", FieldOf(o, "memory_how"));
    ExpectSaid(o, {"messages lie in pinned memory (io_uring, without CUDA"});
}

// A container's seccomp profile answers for io_uring_setup as Docker's does (EPERM) or Podman's (ENOSYS).
Outcome PerfWithoutIoUring(int answer, const std::string &args)
{
    Dir d;
    pid_t pid = fork();

    if (pid == 0) {
        sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(answer)),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        sock_fprog program = {4, code};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            _exit(99);
        Outcome o = Perf(args, kNoCuda);
        std::ofstream(d / "out") << o.out;
        std::ofstream(d / "err") << o.err;
        _exit(o.status);
    }
    int st = 0;
    waitpid(pid, &st, 0);
    return {WEXITSTATUS(st), Slurp(d / "out"), Slurp(d / "err")};
}

TEST(MemoryKind, AContainerThatRefusesIoUringIsNamedAsTheCause)
{
    for (int answer : {EPERM, ENOSYS}) {
        Outcome o = PerfWithoutIoUring(answer, P2p(""));
        const std::string cause =
            std::string("io_uring_setup: ") + strerror(answer) +
            " (by a seccomp profile, as containers have: allow io_uring_setup and "
            "io_uring_register in it)";

        if (o.status == 99)
            GTEST_SKIP() << "no seccomp filter can be set here";
        EXPECT_EQ(0, o.status) << o.err;
        ExpectSaid(o, {"memory cannot be pinned, as NCCL's is: " + cause});
        o = PerfWithoutIoUring(answer, P2p("--memory pinned"));
        EXPECT_EQ(3, o.status) << o.err;
        ExpectSaid(o, {cause + "; use --memory host"});
    }
}

TEST(MemoryKind, HostMemoryLeavesCudaAlone)
{
    for (const char *name : {"host", "movable"}) {
        // The double fails cuInit, so a use of CUDA would be reported.
        Outcome o = Perf(P2p(std::string("--json - --memory ") + name),
                         kDouble + "FAKECUDA_FAIL=cuInit:0:999");

        ASSERT_EQ(0, o.status) << o.err;
        EXPECT_EQ("movable", FieldOf(o, "memory"));
        EXPECT_EQ("ordinary", FieldOf(o, "memory_how"));
        EXPECT_FALSE(Has(o.err, "CUDA")) << o.err;
    }
}

TEST(MemoryKind, GpuMemoryIsRegisteredAsNcclDoes)
{
    const struct {
        std::string env, args, how, log, not_log;
    } cases[] = {
        {kTakesGpu, "", "regMr;", "testnet: regMr, type 2", "DmaBuf"},
        {kTakesDmabuf, "", "regMrDmaBuf;", "testnet: regMrDmaBuf", "regMr, type"},
        {kTakesDmabuf + "NCCL_DMABUF_ENABLE=0", "", "regMr;", "testnet: regMr, type 2", "DmaBuf"},
    };

    for (auto &c : cases) {
        Outcome o = Perf(P2p("--memory gpu --verbose --json - " + c.args), c.env);

        ASSERT_EQ(0, o.status) << o.err;
        EXPECT_EQ("gpu", FieldOf(o, "memory"));
        EXPECT_TRUE(Has(FieldOf(o, "memory_how"), c.how)) << FieldOf(o, "memory_how");
        ExpectSaid(o, {c.log, "messages lie in GPU memory (GPU 0, Fake GPU"});
        EXPECT_FALSE(Has(o.err, "testnet: " + c.not_log)) << o.err;
    }
}

TEST(MemoryKind, ADeviceForHostMemoryGetsWhatNcclStagesThrough)
{
    Outcome o = Perf(P2p("--memory gpu --verbose --json -"), kDouble);

    ASSERT_EQ(0, o.status) << o.err;
    EXPECT_EQ("pinned", FieldOf(o, "memory"));
    ExpectSaid(
        o, {"takes host memory alone", "NCCL stages", "cudaHostAlloc", "testnet: regMr, type 1"});
}

TEST(MemoryKind, RanksThatDifferAreNamed)
{
    NewPort();
    auto out = Launch(2, P2p("--memory gpu"), [](int rank, int n) {
        return Torchrun(rank, n) + " " + (rank ? kDouble : kTakesGpu);
    });

    ASSERT_EQ(0, out[0].status) << out[0].err;
    ExpectSaid(out[0], {"rank 0 and those not named here: messages lie in GPU memory",
                        "rank 1: the device takes host memory alone"});
}

// ---- which GPU ----

TEST(MemoryGpu, TheNearestToTheDeviceIsTaken)
{
    Dir d;
    const std::string root = "/devices/pci0000:40/0000:40:01.0";

    ASSERT_EQ(0, system(("mkdir -p " + (d / (root + "/0000:41:00.0")) + " " +
                         (d / (root + "/0000:42:00.0")) + " " + (d / (root + "/0000:43:00.0")) +
                         " " + (d / "/devices/pci0000:00/0000:0b:00.0 ") + (d / "/bus/pci/devices"))
                            .c_str()));
    for (const std::string dir : {"pci0000:00/0000:0b:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0",
                                  "pci0000:40/0000:40:01.0/0000:43:00.0"})
        ASSERT_EQ(0, symlink(("../../../devices/" + dir).c_str(),
                             (d / ("/bus/pci/devices/" + dir.substr(dir.size() - 12))).c_str()));
    std::string env = kTakesGpu +
                      "FAKECUDA_GPUS=0000:0B:00.0,0000:41:00.0,0000:43:00.0 "
                      "NCCL_PVRDMA_SYSFS_ROOT=" +
                      (d / "") + " TESTNET_PCI=" + (d / (root + "/0000:42:00.0"));
    Outcome near = Perf(P2p("--memory gpu --json -"), env);
    Outcome given = Perf(P2p("--memory gpu --gpu 0 --json -"), env);
    Outcome pinned = Perf(P2p("--json -"), env);

    ASSERT_EQ(0, near.status) << near.err;
    EXPECT_TRUE(Has(FieldOf(near, "memory_how"), "GPU 1, Fake GPU, 0000:41:00.0"))
        << FieldOf(near, "memory_how");
    ASSERT_EQ(0, given.status) << given.err;
    EXPECT_TRUE(Has(FieldOf(given, "memory_how"), "GPU 0, Fake GPU, 0000:0b:00.0"));
    ASSERT_EQ(0, pinned.status) << pinned.err;
    EXPECT_TRUE(Has(FieldOf(pinned, "memory_how"), "GPU 1,")) << FieldOf(pinned, "memory_how");
}

TEST(MemoryGpu, NearnessCountsWhatTwoPathsShare)
{
    const char *nic = "/sys/devices/pci0000:40/0000:40:01.0/0000:42:00.0";

    EXPECT_EQ(6, pvn_gpu_nearness(nic, nic));
    EXPECT_EQ(4, pvn_gpu_nearness(nic, "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0"));
    EXPECT_EQ(2, pvn_gpu_nearness(nic, "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0"));
    EXPECT_EQ(0, pvn_gpu_nearness(nic, "/sys/devices/pci0000:4/0000:40:01.0/0000:41:00.0"));
    EXPECT_EQ(0, pvn_gpu_nearness(nic, "/sys/devices/virtual/net/lo"));
    EXPECT_EQ(0, pvn_gpu_nearness("", ""));
}

TEST(MemoryGpu, WhatCannotBeHadIsSaidWithTheRemedy)
{
    const struct {
        std::string args, env;
        std::vector<std::string> said;
    } cases[] = {
        {"--memory gpu",
         kNoCuda,
         {"all 2 ranks: --memory gpu: cannot load /nowhere/libcuda.so.1", "no NVIDIA driver",
          "use --memory pinned"}},
        {"--gpu 0", kNoCuda, {"pinned memory of --gpu: cannot load", "no NVIDIA driver"}},
        {"--memory gpu",
         kDouble + "FAKECUDA_FAIL=cuInit:0:100",
         {"cuInit: CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"}},
        {"--memory gpu --gpu 1",
         kDouble,
         {"--gpu 1: CUDA shows this process 1 GPU, from number 0 on", "CUDA_VISIBLE_DEVICES"}},
        {"--memory gpu",
         kDouble + "FAKECUDA_FAIL=cuDevicePrimaryCtxRetain:1:2",
         {"cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY"}},
        {"--memory gpu",
         kTakesGpu + "FAKECUDA_FAIL=cuMemAlloc_v2:1:2",
         {"cannot allocate", "GPU 0 (Fake GPU 0000:0b:00.0)", "CUDA_ERROR_OUT_OF_MEMORY",
          "smaller --sizes"}},
        {"--memory pinned",
         kDouble + "FAKECUDA_FAIL=cuMemHostAlloc:1:2",
         {"--memory pinned: cannot pin", "CUDA_ERROR_OUT_OF_MEMORY", "use --memory host"}},
        {"--memory gpu",
         kTakesDmabuf + "FAKECUDA_FAIL=cuMemGetHandleForAddressRange:1:801",
         {"does not export", "CUDA_ERROR_NOT_SUPPORTED", "NCCL_DMABUF_ENABLE=0"}},
        {"--memory gpu",
         kTakesDmabuf + "TESTNET_FAULT=reg",
         {"testnet: no memory is registered, by request", "regMrDmaBuf of",
          "failed with ncclSystemError", "--memory pinned"}},
        {"--memory gpu",
         kTakesGpu + "TESTNET_FAULT=reg",
         {"testnet: no memory is registered, by request", "regMr of",
          "failed with ncclSystemError"}},
        {"--memory gpu",
         kTakesGpu + "TESTNET_FAULT=flush",
         {"testnet: iflush fails by request", "iflush of plugin t failed"}},
        {"--memory gpu",
         kTakesGpu + "FAKECUDA_FAIL=cuMemcpyHtoDAsync_v2:3:999",
         {"into memory of GPU 0 failed", "CUDA_ERROR_UNKNOWN"}},
        {"--memory gpu",
         kTakesGpu + "FAKECUDA_FAIL=cuMemcpyDtoHAsync_v2:3:999",
         {"out of memory of GPU 0 failed", "CUDA_ERROR_UNKNOWN"}},
    };

    for (auto &c : cases) {
        Outcome o = Perf(P2p(c.args), c.env);

        EXPECT_EQ(3, o.status) << c.args << " with " << c.env << "\n" << o.err;
        ExpectSaid(o, c.said);
    }
}

// The plugin reports wrong parameters itself. pvn-perf, which reads the same ones, must not blame CUDA.
TEST(MemoryGpu, AParametersErrorIsNotOneOfCuda)
{
    Outcome o =
        Perf("p2p --sizes 8 --iters 1 --plugin " PVN_BUILDDIR "/.libs/libnccl-net-pvrdma.so",
             "NCCL_PVRDMA_TRANSPORT=udp");

    EXPECT_EQ(3, o.status) << o.err;
    ExpectSaid(o, {"NCCL_PVRDMA_TRANSPORT=udp is not a choice"});
    EXPECT_FALSE(Has(o.out + o.err, "CUDA is not used")) << o.err;
}

TEST(MemoryGpu, ByDefaultARunGoesOnWithoutIt)
{
    Outcome o = Perf(P2p("--json -"), kDouble + "FAKECUDA_FAIL=cuInit:0:100");

    ASSERT_EQ(0, o.status) << o.err;
    ExpectSaid(o, {"CUDA is not used: cuInit: CUDA_ERROR_NO_DEVICE"});
    o = Perf(P2p("--json -"), kDouble + "FAKECUDA_FAIL=cuMemHostAlloc:1:2");
    ASSERT_EQ(0, o.status) << o.err;
    EXPECT_EQ("movable", FieldOf(o, "memory"));
    ExpectSaid(o, {"memory cannot be pinned", "CUDA_ERROR_OUT_OF_MEMORY",
                   "messages lie in memory that the kernel can move"});
}

// ---- what moves ----

TEST(MemoryData, WrongBytesInGpuMemoryAreFound)
{
    Outcome p2p =
        Perf("p2p --plugin t=" + kTestnet + " --sizes 70000 --iters 20 --check --memory gpu",
             kTakesGpu + "TESTNET_FAULT=corrupt:7");
    Outcome over = Perf(P2p("--memory gpu"), kTakesGpu + "TESTNET_FAULT=overrun");
    Outcome ring = Perf(Ring("--memory gpu --ranks 3 --sizes 1M --slot 64K"),
                        kTakesGpu + "TESTNET_FAULT=corrupt:7");
    Outcome pairs = Perf(Ring("--memory gpu --ranks 3 --sizes 1M --slot 64K --collective alltoall"),
                         kTakesGpu + "TESTNET_FAULT=corrupt:7");
    Outcome bare = Perf(Ring("--memory gpu --ranks 3 --sizes 1M --slot 64K --no-sums"),
                        kTakesGpu + "TESTNET_FAULT=corrupt:7");

    EXPECT_EQ(1, p2p.status) << p2p.err;
    ExpectSaid(p2p, {"fault corrupt fired", "WRONG DATA: channel 0", "bytes differ"});
    EXPECT_EQ(1, over.status) << over.err;
    ExpectSaid(over, {"outside the message were written"});
    EXPECT_EQ(1, ring.status) << ring.err;
    ExpectSaid(ring, {"fault corrupt fired", "WRONG DATA: element"});
    EXPECT_EQ(1, pairs.status) << pairs.err;
    ExpectSaid(pairs, {"fault corrupt fired", "WRONG DATA"});
    EXPECT_EQ(1, bare.status) << bare.err;
    ExpectSaid(bare, {"fault corrupt fired", "WRONG DATA: byte"});
}

// testnet delivers the bytes of a receive only with its flush.
TEST(MemoryData, ReceivesAreUsedAfterTheirFlush)
{
    const std::string late = kTakesGpu + "TESTNET_LATE=1 ";
    const std::string runs[] = {
        P2p("--memory gpu"),
        P2p("--memory gpu --group 3 --channels 2 --bidirectional"),
        Ring("--memory gpu --ranks 3 --sizes 1M --slot 64K"),
        Ring("--memory gpu --ranks 2 --sizes 1M --slot 64K --no-sums"),
        Ring("--memory gpu --ranks 3 --sizes 1M --slot 64K --collective alltoall"),
        Ring("--memory gpu --ranks 4 --group 2 --sizes 1M --slot 64K "
             "--collective alltoall --no-sums")};

    for (auto &run : runs) {
        Outcome o = Perf(run, late);

        EXPECT_EQ(0, o.status) << run << "\n" << o.err;
        ExpectSaid(o, {"flushed after each receive"});
        // NCCL skips flushes from compute capability 9.0 on, unless the device forces them.
        o = Perf(run, late + "FAKECUDA_CC=9");
        EXPECT_EQ(1, o.status) << run << "\n" << o.err;
        ExpectSaid(o, {"no flush needed", "WRONG DATA"});
        o = Perf(run, late + "FAKECUDA_CC=9 TESTNET_FORCE_FLUSH=1");
        EXPECT_EQ(0, o.status) << run << "\n" << o.err;
    }
}

TEST(MemoryData, OtherModesRunOnGpuMemory)
{
    const std::string runs[] = {
        "p2p --plugin t=" + kTestnet + " --memory gpu --idle 0.1 --channels 20",
        "p2p --plugin t=" + kTestnet + " --memory gpu --duration 0.3 --interval 0.1 --check",
        Ring("--memory gpu --ranks 2 --sizes 1M --collective broadcast --type bfloat16"),
        "ring --plugin t=" + kTestnet + " --memory gpu --ranks 2 --sizes 1M --no-sums --iters 3",
        "ring --plugin t=" + kTestnet +
            " --memory gpu --ranks 2 --sizes 1M --no-sums --iters 3 --collective alltoallv",
        Ring("--memory gpu --ranks 3 --sizes 1M --collective pipeline"),
    };

    for (auto &run : runs) {
        Outcome o = Perf(run, kTakesDmabuf);

        EXPECT_EQ(0, o.status) << run << "\n" << o.err;
        ExpectSaid(o, {"messages lie in GPU memory"});
    }
}

// This build's plugin, on an adapter whose accesses are copies by CUDA, because no processor can access that memory.
TEST(MemoryData, ThePluginMovesGpuMemoryThatOnlyCopiesReach)
{
    Dir d;
    ASSERT_EQ(0, mkdir((d / "sys").c_str(), 0700));
    const std::string env =
        kDouble +
        "FAKECUDA_HIDE=1 NCCL_PVRDMA_TRANSPORT=rdma PVN_SOFTVERBS_PROFILE=cuda "
        "NCCL_PVRDMA_VERBS_LIB=" +
        kSoftverbs + " PVN_SOFTVERBS_CUDA_LIB=" + kCuda + " PVN_SOFTVERBS_DIR=" + (d / "") +
        " PVN_SOFTVERBS_SYSFS=" + (d / "sys") + " NCCL_PVRDMA_SYSFS_ROOT=" + (d / "sys ");

    for (const std::string run :
         {"p2p --memory gpu --sizes 5,64K,1M --check --iters 20 --warmup 1",
          "ring --memory gpu --ranks 3 --sizes 1M --slot 64K --check --iters 2 --warmup 0"}) {
        Outcome o = Perf(run, env);

        EXPECT_EQ(0, o.status) << run << "\n" << o.err;
        ExpectSaid(o, {"regMrDmaBuf; flushed after each receive", "all data verified"});
    }
}

// ---- the command line ----

TEST(MemoryOptions, AreCheckedTogether)
{
    const struct {
        std::string args, said;
    } cases[] = {
        {"p2p --memory tape", "--memory tape: expected gpu, pinned or host"},
        {"p2p --gpu -1", "--gpu -1: expected"},
        {"p2p --gpu x", "--gpu x: expected"},
        {"p2p --gpu 0 --memory host", "--gpu 0 has no effect with --memory host"},
        {"serve --memory gpu", "--memory has no effect in serve"},
    };

    for (auto &c : cases) {
        Outcome o = Perf(c.args);

        EXPECT_EQ(2, o.status) << c.args;
        EXPECT_TRUE(Has(o.err, c.said)) << o.err;
    }
}

} // namespace
