// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A job's key on a host with RDMA adapters decides which devices are offered, and what is sealed.
#include "rdma/plugin_route.h"

#include "support/key_file.h"

#include <memory>

using namespace nccl;

namespace
{

class PluginKey : public PluginRdma
{
  protected:
    Folder folder;

    // Starts the plugin with a key, and with this value of ENCRYPT.
    std::unique_ptr<Net> start(const char *encrypt)
    {
        setenv("NCCL_PVRDMA_KEY_FILE",
               write_file(folder / "key", "0123456789abcdef0123456789abcdef").c_str(), 1);
        setenv("NCCL_PVRDMA_ENCRYPT", encrypt, 1);
        adapters("pvrdma", "");
        return std::make_unique<Net>(12);
    }
    void TearDown() override
    {
        unsetenv("NCCL_PVRDMA_KEY_FILE");
        unsetenv("NCCL_PVRDMA_ENCRYPT");
        PluginRdma::TearDown();
    }
    static int times(const char *what)
    {
        int n = 0;
        const std::string text = Log::get().text();
        for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
            n++;
        return n;
    }
    // Moves messages of several sizes. Returns the doorbells that adapters got for them.
    uint64_t moves(Net &n)
    {
        sv_stats before, after;
        sv::lib().sv_total_stats(&before);
        {
            Route r(n, 0);
            for (size_t size : {size_t(1), size_t(700), size_t(Route::SIZE)}) {
                r.size = size;
                EXPECT_TRUE(r.move(static_cast<unsigned>(size)));
            }
        }
        sv::lib().sv_total_stats(&after);
        return after.doorbells - before.doorbells;
    }
};

TEST_F(PluginKey, DataGoOverAdaptersAndTheControlConnectionIsSealed)
{
    auto n = start("auto");
    EXPECT_LT(0u, moves(*n));
    EXPECT_TRUE(said("control connection sealed, 1 lane")) << Log::get().text();
    EXPECT_FALSE(said("sealed (TLS_")) << Log::get().text();
}

TEST_F(PluginKey, WithAllNoAdapterIsUsed)
{
    auto n = start("all");
    EXPECT_EQ(0u, moves(*n));
    EXPECT_TRUE(said("RDMA devices are left alone: NCCL_PVRDMA_ENCRYPT=all")) << Log::get().text();
    EXPECT_TRUE(said("sealed (TLS_")) << Log::get().text();
}

// A file that replaces the key after the better connection was made prevents no end from using that
// connection, because it was made with the job's key.
TEST_F(PluginKey, AKeyReplacedBehindTheBetterConnectionHindersNoReturn)
{
    const char *sealed = "control connection sealed, 1 lane: rdma";
    setenv("NCCL_PVRDMA_FAILOVER", "1", 1);
    auto n = start("auto");
    Route r(*n, 0);
    ASSERT_TRUE(r.move(1));
    ASSERT_EQ(2, times(sealed)) << "of both ends\n" << Log::get().text();
    ASSERT_EQ(0, sv::command("port * 1 down"));
    ASSERT_TRUE(eventually([&] { return !r.move(2) || times("connected again after") == 2; }));
    ASSERT_EQ(0, sv::command("port * 1 up"));
    // The plugin's own threads make the connection. The comms are called only once it stands.
    ASSERT_TRUE(eventually([&] { return times(sealed) >= 4; })) << Log::get().text();
    EXPECT_EQ(0, times("on worse lanes: rdma"));
    write_file(folder / "key", "another key of another job, later");
    EXPECT_TRUE(eventually([&] { return !r.move(3) || times("on worse lanes: rdma") == 2; }));
    EXPECT_TRUE(r.move(4)) << Log::get().warnings();
    EXPECT_EQ(2, times("on worse lanes: rdma")) << Log::get().text();
    EXPECT_EQ(0, times("was replaced while the job ran"));
    // The key file is checked, because the next failover is refused.
    ASSERT_EQ(0, sv::command("port * 1 down"));
    EXPECT_TRUE(eventually([&] { return !r.move(5); }));
    EXPECT_LT(0, times("was replaced while the job ran"));
}

} // namespace
