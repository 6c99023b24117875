// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Each verb that the plugin calls in a comm's life fails once.
#include "abi/life.h"
#include "rdma/plugin_route.h"

#include <map>

using namespace nccl;

namespace
{

const char *const kVerbs[] = {"open_device",  "query_device",    "query_port",
                              "query_gid_ex", "query_gid_table", "alloc_pd",
                              "create_cq",    "create_qp",       "destroy_qp",
                              "modify_qp",    "query_qp",        "reg_mr",
#ifndef __SANITIZE_ADDRESS__ /* a registration that the device keeps is a leak to it */
                              "dereg_mr",
#endif
                              "post_send",    "post_recv",       "poll_cq",
                              "fork_init",    "get_device_list", "create_comp_channel",
                              "req_notify_cq"};

struct PluginCalls : PluginRdma, testing::WithParamInterface<std::tuple<const char *, bool>> {
    const char *profile = std::get<0>(GetParam());
    bool failover = std::get<1>(GetParam());

    void SetUp() override
    {
        PluginRdma::SetUp();
        setenv("NCCL_PVRDMA_FAILOVER", failover ? "1" : "0", 1);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    }
    // Counts the calls of each verb in a comm's life.
    std::map<std::string, int64_t> count()
    {
        std::map<std::string, int64_t> calls;
        adapters(profile, "");
        for (const char *verb : kVerbs)
            EXPECT_EQ(0, sv::command(std::string("rule ") + verb +
                                     " fail errno=EIO nth=1000000000 call=" + verb));
        {
            Net n(12);
            EXPECT_TRUE(Life(n).done) << Log::get().text();
        }
        for (const char *verb : kVerbs)
            calls[verb] = sv::lib().sv_rule_seen(verb);
        return calls;
    }
};
INSTANTIATE_TEST_SUITE_P(Of, PluginCalls,
                         testing::Combine(testing::Values("pvrdma", "roce"), testing::Bool()),
                         [](const auto &i) {
                             return std::string(std::get<0>(i.param)) +
                                    (std::get<1>(i.param) ? "WithFailover" : "");
                         });

// A fault before the comm is up costs the comm its RDMA lane at most, because TCP is left. With
// failover this is true of a later fault, too. Only NCCL's own registration is refused, because
// NCCL handles the refusal.
TEST_P(PluginCalls, EachFailsOnce)
{
    int fired = 0, failed = 0;
    for (const auto &verb : count())
        for (int64_t nth = 1; nth <= verb.second; nth++) {
            SCOPED_TRACE(verb.first + " number " + std::to_string(nth));
            adapters(profile, "");
            ASSERT_EQ(0, sv::command("rule fault fail errno=EIO call=" + verb.first +
                                     " nth=" + std::to_string(nth)));
            Log::get().clear();
            const auto before = descriptors();
            {
                Net n(12);
                const Life life(n);
                if (!life.done) {
                    failed++;
                    EXPECT_TRUE(life.up) << Log::get().text();
                    EXPECT_TRUE(!failover || !strcmp(life.failed_in, "regMr"))
                        << life.failed_in << "\n"
                        << Log::get().text();
                    EXPECT_TRUE(Log::get().warned({"Input/output error"})) << Log::get().text();
                }
            }
            fired +=
                sv::lib().sv_rule_fired("fault") == 1; // how often an empty queue is polled varies
            EXPECT_EQ(before, descriptors());
        }
    printf("%d faults fired, and ended %d comms\n", fired, failed);
    EXPECT_LT(40, fired);
    EXPECT_LT(0, failed);
}

} // namespace
