// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "base/clock.h"
#include "base/log.h"
#include "base/dev_list.h"
#include "base/nccl_vars.h"
#include "base/param.h"
#include "base/param_value.h"
#include "base/result.h"
}

namespace
{

std::vector<pvn_param_def> all_rows()
{
    size_t count;
    const pvn_param_def *table = pvn_param_table(&count);

    return {table, table + count};
}

size_t row_index(const char *name)
{
    const auto rows = all_rows();

    for (size_t i = 0; i < rows.size(); i++)
        if (strcmp(rows[i].name, name) == 0)
            return i;
    ADD_FAILURE() << name << " is not in the table";
    return 0;
}

std::string shown(const char *name, const pvn_params &params)
{
    const auto rows = all_rows();
    char buf[PVN_PARAM_STR_LEN];

    return pvn_param_format(&rows[row_index(name)], &params, buf, sizeof(buf));
}

class Param : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        pvn_log_set_capture(
            [](void *arg, pvn_log_level, unsigned long, const char *, int, const char *text) {
                static_cast<Param *>(arg)->warnings.push_back(text);
            },
            this);
    }

    void TearDown() override
    {
        pvn_log_set_capture(nullptr, nullptr);
    }

    int read(const std::vector<std::string> &env)
    {
        std::vector<char *> envp;

        for (const auto &e : env)
            envp.push_back(const_cast<char *>(e.c_str()));
        envp.push_back(nullptr);
        memset(&params, 0xa5, sizeof(params));
        pvn_err_clear(&err);
        return pvn_params_read(&params, envp.data(), &err);
    }

    std::string why() const
    {
        char buf[PVN_ERR_TEXT_LEN];

        pvn_err_format(&err, buf, sizeof(buf));
        return buf;
    }

    pvn_params params;
    pvn_err err = PVN_ERR_INIT;
    std::vector<std::string> warnings;
};

TEST_F(Param, TableIsConsistent)
{
    std::set<std::string> names, aliases;
    std::vector<std::pair<size_t, size_t>> fields;

    for (const auto &row : all_rows()) {
        SCOPED_TRACE(row.name);
        pvn_params scratch;
        char why_text[96], text[PVN_PARAM_STR_LEN];

        EXPECT_TRUE(names.insert(row.name).second);
        EXPECT_LE(strlen(row.name), 48u) << "too long for did-you-mean";
        if (row.alias) {
            EXPECT_TRUE(aliases.insert(row.alias).second);
            EXPECT_EQ(0, strncmp(row.alias, "NCCL_", 5));
        }
        const size_t want = row.type == PVN_PARAM_BOOL                                ? sizeof(bool)
                            : row.type == PVN_PARAM_INT || row.type == PVN_PARAM_ENUM ? sizeof(int)
                            : row.type == PVN_PARAM_SIZE || row.type == PVN_PARAM_DURATION
                                ? sizeof(uint64_t)
                                : PVN_PARAM_STR_LEN;
        EXPECT_EQ(want, row.size) << "the field's type does not fit the row's";
        fields.emplace_back(row.offset, row.size);

        ASSERT_EQ(0, pvn_param_parse(&row, row.def, &scratch, why_text, sizeof(why_text)))
            << why_text;
        EXPECT_STREQ(row.def, pvn_param_format(&row, &scratch, text, sizeof(text)))
            << "write the default as it is printed";
        if (row.type == PVN_PARAM_INT || row.type == PVN_PARAM_SIZE ||
            row.type == PVN_PARAM_DURATION) {
            EXPECT_LT(row.min, row.max);
        }
        EXPECT_EQ(row.type == PVN_PARAM_DURATION || row.type == PVN_PARAM_SIZE,
                  row.unit != nullptr);
        ASSERT_NE(nullptr, row.help);
        EXPECT_EQ('.', row.help[strlen(row.help) - 1]);
    }
    std::sort(fields.begin(), fields.end());
    for (size_t i = 1; i < fields.size(); i++)
        EXPECT_LE(fields[i - 1].first + fields[i - 1].second, fields[i].first)
            << "two rows share a field";
}

TEST_F(Param, DefaultsComeFromTheTable)
{
    ASSERT_EQ(0, read({}));
    EXPECT_EQ(PVN_TRANSPORT_AUTO, params.transport);
    EXPECT_FALSE(params.strict);
    EXPECT_STREQ("", params.socket_ifname);
    EXPECT_EQ(AF_UNSPEC, params.socket_family);
    EXPECT_EQ(512u << 10, params.tcp_chunk);
    EXPECT_EQ(60 * PVN_NS_PER_S, params.connect_timeout);
    EXPECT_EQ(-1, params.traffic_class);
    EXPECT_STREQ("libibverbs.so.1", params.verbs_lib);
    for (const auto source : params.source)
        EXPECT_EQ(PVN_PARAM_FROM_DEFAULT, source);
    EXPECT_TRUE(warnings.empty());
}

TEST_F(Param, ASettingIsNamedByTheVariableThatMadeIt)
{
    char text[64] = "x";

    ASSERT_EQ(0, read({"NCCL_IB_GID_INDEX=3", "NCCL_IB_PKEY=2", "NCCL_PVRDMA_PKEY=0x10"}));
    EXPECT_STREQ("NCCL_IB_GID_INDEX=3",
                 pvn_param_setting(&params, "GID_INDEX", text, sizeof(text)));
    EXPECT_STREQ("NCCL_PVRDMA_PKEY=16", pvn_param_setting(&params, "PKEY", text, sizeof(text)));
    EXPECT_STREQ("", pvn_param_setting(&params, "ADDR_RANGE", text, sizeof(text)));
    EXPECT_STREQ("NCCL_PVRDMA", pvn_param_setting(&params, "PKEY", text, 12)) << "cut";
}

TEST_F(Param, NullEnvironmentIsEmpty)
{
    EXPECT_EQ(0, pvn_params_read(&params, nullptr, &err));
}

struct Good {
    const char *setting;
    const char *name;
    const char *shown;
};

class ParamGood : public Param, public ::testing::WithParamInterface<Good>
{
};

TEST_P(ParamGood, IsTakenAndPrintedBack)
{
    ASSERT_EQ(0, read({GetParam().setting})) << why();
    EXPECT_EQ(GetParam().shown, shown(GetParam().name, params));
    EXPECT_EQ(PVN_PARAM_FROM_ENV, params.source[row_index(GetParam().name)]);
    EXPECT_TRUE(warnings.empty());

    /* A value can be entered as it is printed. */
    const std::string again =
        std::string(PVN_PARAM_PREFIX) + GetParam().name + "=" + GetParam().shown;
    ASSERT_EQ(0, read({again})) << why();
    EXPECT_EQ(GetParam().shown, shown(GetParam().name, params));
}

INSTANTIATE_TEST_SUITE_P(
    Values, ParamGood,
    ::testing::Values(
        Good{"NCCL_PVRDMA_TRANSPORT=TCP", "TRANSPORT", "tcp"},
        Good{"NCCL_PVRDMA_STRICT=yes", "STRICT", "1"},
        Good{"NCCL_PVRDMA_STRICT=Off", "STRICT", "0"},
        Good{"NCCL_PVRDMA_STRICT= 1 ", "STRICT", "1"},
        Good{"NCCL_PVRDMA_SOCKET_FAMILY=ipv6", "SOCKET_FAMILY", "AF_INET6"},
        Good{"NCCL_PVRDMA_TCP_STREAMS=16", "TCP_STREAMS", "16"},
        Good{"NCCL_PVRDMA_TCP_STREAMS=0", "TCP_STREAMS", "auto"},
        Good{"NCCL_PVRDMA_TCP_STREAMS=AUTO", "TCP_STREAMS", "auto"},
        Good{"NCCL_PVRDMA_TCP_STREAMS=010", "TCP_STREAMS", "10"},
        Good{"NCCL_PVRDMA_TC=0x20", "TC", "32"}, Good{"NCCL_PVRDMA_TC=-1", "TC", "unset"},
        Good{"NCCL_PVRDMA_TCP_CHUNK=64k", "TCP_CHUNK", "64K"},
        Good{"NCCL_PVRDMA_TCP_CHUNK=1MiB", "TCP_CHUNK", "1M"},
        Good{"NCCL_PVRDMA_TCP_CHUNK=5000", "TCP_CHUNK", "5000"},
        Good{"NCCL_PVRDMA_TCP_CHUNK=8192 B", "TCP_CHUNK", "8K"},
        Good{"NCCL_PVRDMA_TCP_SNDBUF=1G", "TCP_SNDBUF", "1G"},
        Good{"NCCL_PVRDMA_CONNECT_TIMEOUT=5", "CONNECT_TIMEOUT", "5s"},
        Good{"NCCL_PVRDMA_CONNECT_TIMEOUT=1500ms", "CONNECT_TIMEOUT", "1500ms"},
        Good{"NCCL_PVRDMA_CONNECT_TIMEOUT=2 min", "CONNECT_TIMEOUT", "120s"},
        Good{"NCCL_PVRDMA_CONNECT_TIMEOUT=1m", "CONNECT_TIMEOUT", "60s"},
        Good{"NCCL_PVRDMA_STALL_ABORT=5m", "STALL_ABORT", "300s"},
        Good{"NCCL_PVRDMA_FAILOVER_TIMEOUT=2h", "FAILOVER_TIMEOUT", "7200s"},
        Good{"NCCL_PVRDMA_FAILOVER_TIMEOUT=1d", "FAILOVER_TIMEOUT", "86400s"},
        Good{"NCCL_PVRDMA_CONNECT_TIMEOUT=20000001ns", "CONNECT_TIMEOUT", "20000001ns"},
        Good{"NCCL_PVRDMA_TCP_BATCH=0", "TCP_BATCH", "0"},
        Good{"NCCL_PVRDMA_STALL_WARN=0", "STALL_WARN", "0"},
        Good{"NCCL_PVRDMA_TCP_CC=reno", "TCP_CC", "reno"},
        Good{"NCCL_PVRDMA_ADDR_RANGE= 10.1.0.0/16 ", "ADDR_RANGE", "10.1.0.0/16"},
        Good{"NCCL_PVRDMA_SOCKET_IFNAME= =eth0, eth1 ", "SOCKET_IFNAME", "=eth0, eth1"}));

/* Any value of NCCL's switch but 0 (and no word) switches RDMA off. The plugin's own parameter
 * overrides it. */
TEST_F(Param, NcclSwitchesRdmaOff)
{
    struct {
        std::vector<std::string> set;
        int transport;
    } rows[] = {{{"NCCL_IB_DISABLE=1"}, PVN_TRANSPORT_TCP},
                {{"NCCL_IB_DISABLE=2"}, PVN_TRANSPORT_TCP},
                {{"NCCL_IB_DISABLE=0"}, PVN_TRANSPORT_AUTO},
                {{"NCCL_IB_DISABLE="}, PVN_TRANSPORT_AUTO},
                {{"NCCL_IB_DISABLE=yes"}, PVN_TRANSPORT_AUTO},
                {{"NCCL_IB_DISABLE=1", "NCCL_PVRDMA_TRANSPORT=rdma"}, PVN_TRANSPORT_RDMA}};
    for (const auto &row : rows) {
        ASSERT_EQ(0, read(row.set)) << why();
        EXPECT_EQ(row.transport, params.transport) << row.set[0];
        EXPECT_EQ(row.transport == PVN_TRANSPORT_TCP ? PVN_PARAM_FROM_ALIAS
                  : row.set.size() > 1               ? PVN_PARAM_FROM_ENV
                                                     : PVN_PARAM_FROM_DEFAULT,
                  params.source[row_index("TRANSPORT")])
            << row.set[0];
    }
    EXPECT_TRUE(warnings.empty());
}

/* Each of these switches of NCCL has an effect with one of its values only; the other one is the
 * plugin's default. */
TEST_F(Param, NcclSwitchesWithOneSide)
{
    ASSERT_EQ(0, read({"NCCL_IB_MERGE_NICS=0", "NCCL_GDR_FLUSH_DISABLE=1",
                       "NCCL_IBVERBS_LIB=/opt/lib/libibverbs.so"}));
    EXPECT_EQ(0, params.vdevice);
    EXPECT_EQ(PVN_FLUSH_MODE_NONE, params.flush);
    EXPECT_STREQ("/opt/lib/libibverbs.so", params.verbs_lib);
    EXPECT_EQ(PVN_PARAM_FROM_ALIAS, params.source[row_index("VDEVICE")]);
    ASSERT_EQ(0, read({"NCCL_IB_MERGE_NICS=1", "NCCL_GDR_FLUSH_DISABLE=0"}));
    EXPECT_EQ(-1, params.vdevice);
    EXPECT_EQ(PVN_FLUSH_MODE_AUTO, params.flush);
    EXPECT_EQ(PVN_PARAM_FROM_DEFAULT, params.source[row_index("VDEVICE")]);
    ASSERT_EQ(0, read({"NCCL_IB_MERGE_NICS=0", "NCCL_PVRDMA_VDEVICE=1"}));
    EXPECT_EQ(1, params.vdevice);
    EXPECT_TRUE(warnings.empty());
}

/* Both the numbers and the default, 2, are NCCL's. */
TEST_F(Param, RelaxedOrderingHasNcclsNumbers)
{
    for (int value : {0, 1, 2}) {
        ASSERT_EQ(0, read({"NCCL_IB_PCI_RELAXED_ORDERING=" + std::to_string(value)})) << why();
        EXPECT_EQ(value, params.relaxed_ordering);
        EXPECT_EQ(PVN_PARAM_FROM_ALIAS, params.source[row_index("RELAXED_ORDERING")]);
        EXPECT_EQ(value == 2 ? "auto" : std::to_string(value), shown("RELAXED_ORDERING", params));
    }
    ASSERT_EQ(0, read({"NCCL_IB_PCI_RELAXED_ORDERING=1", "NCCL_PVRDMA_RELAXED_ORDERING=0"}));
    EXPECT_EQ(0, params.relaxed_ordering);
    ASSERT_EQ(0, read({"NCCL_PVRDMA_RELAXED_ORDERING=auto"}));
    EXPECT_EQ(2, params.relaxed_ordering);
    ASSERT_EQ(0, read({"NCCL_IB_PCI_RELAXED_ORDERING=-2"})) << "NCCL's word for unset";
    EXPECT_EQ(2, params.relaxed_ordering);
    EXPECT_TRUE(warnings.empty());
}

TEST_F(Param, FailoverWithStrictIsSaidToHaveNoEffect)
{
    ASSERT_EQ(0, read({"NCCL_PVRDMA_STRICT=1"}));
    ASSERT_EQ(0, read({"NCCL_PVRDMA_STRICT=1", "NCCL_PVRDMA_FAILOVER=0"}));
    ASSERT_EQ(0, read({"NCCL_PVRDMA_FAILOVER=1"}));
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    ASSERT_EQ(0, read({"NCCL_PVRDMA_STRICT=1", "NCCL_PVRDMA_FAILOVER=1"}));
    ASSERT_EQ(1u, warnings.size());
    EXPECT_EQ(0u, warnings[0].find("NCCL_PVRDMA_STRICT=1 excludes failover")) << warnings[0];
}

TEST_F(Param, WhatIsMissedIsSaidOnce)
{
    const std::vector<std::string> silent = {
        "NCCL_IB_FIFO_TC=-1",      "NCCL_IB_FIFO_TC=",   "NCCL_IB_OOO_RQ=0",
        "NCCL_IB_DATA_DIRECT=0x0", "NCCL_CROSS_NIC=1",   "NCCL_IB_USE_INLINE=1",
        "NCCL_ENV_PLUGIN=NONE",    "NCCL_NO_SUCH_ONE=1", "NCCL_IB_FIFO_TCX=1",
        "NCCL_IB_FIFO_TC",         "XNCCL_IB_FIFO_TC=1"};
    ASSERT_EQ(0, read(silent));
    EXPECT_TRUE(warnings.empty()) << warnings[0];

    const struct {
        const char *setting, *names;
    } said[] = {{"NCCL_IB_FIFO_TC=46", "NCCL_PVRDMA_TC"},
                {"NCCL_IB_SPLIT_DATA_ON_QPS=1", "NCCL_PVRDMA_RDMA_CHUNK"},
                {"NCCL_IB_OOO_RQ=1", "out of order"},
                {"NCCL_SOCKET_RETRY_SLEEP_MSEC=500", "NCCL_PVRDMA_CONNECT_TIMEOUT"},
                {"NCCL_IB_RESILIENCY_PORT_RECOVERY=0", "NCCL_PVRDMA_FAILOVER"},
                {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL=9", "no setting"},
                {"NCCL_ENV_PLUGIN=acme", "environment of the process"}};
    for (const auto &s : said) {
        warnings.clear();
        SetUp(); /* one line of code logs all of them: forget folded lines */
        ASSERT_EQ(0, read({s.setting}));
        ASSERT_EQ(1u, warnings.size()) << s.setting;
        EXPECT_EQ(0u, warnings[0].find(std::string(s.setting) + " has no effect on this plugin. "))
            << warnings[0];
        EXPECT_NE(std::string::npos, warnings[0].find(s.names)) << warnings[0];
    }
}

TEST_F(Param, NcclsVariablesAreConsistent)
{
    std::set<std::string> names;
    size_t count;
    const pvn_nccl_var *vars = pvn_nccl_var_table(&count);

    for (const auto &row : all_rows()) {
        if (row.alias) {
            names.insert(row.alias);
        }
    }
    for (size_t i = 0; i < count; i++) {
        SCOPED_TRACE(vars[i].names);
        const char *at = vars[i].names;
        char name[PVN_NCCL_VAR_LEN];
        int n = 0;
        while (pvn_nccl_var_next(&at, name)) {
            n++;
            EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
            EXPECT_EQ(0, strncmp(name, "NCCL_", 5)) << name;
            EXPECT_LT(strlen(name), size_t{PVN_NCCL_VAR_LEN} - 1) << name << " may be cut";
            EXPECT_EQ(&vars[i], pvn_nccl_var_find(name));
        }
        EXPECT_LE(1, n);
        EXPECT_EQ('.', vars[i].text[strlen(vars[i].text) - 1]);
        EXPECT_TRUE(!vars[i].fits || vars[i].use == PVN_NCCL_LOST);
    }
    EXPECT_EQ(nullptr, pvn_nccl_var_find("NCCL_IB"));
    EXPECT_EQ(nullptr, pvn_nccl_var_find(""));
}

struct Bad {
    const char *setting;
    const char *says;
};

class ParamBad : public Param, public ::testing::WithParamInterface<Bad>
{
};

TEST_P(ParamBad, IsRefusedWithNameValueAndRemedy)
{
    const std::string setting = GetParam().setting;

    ASSERT_EQ(-EINVAL, read({setting}));
    EXPECT_EQ(PVN_RESULT_INVALID_USAGE, pvn_result_of(-EINVAL, &err));
    EXPECT_EQ(0u, why().find(setting.substr(0, setting.find('=') + 1))) << why();
    EXPECT_NE(std::string::npos, why().find(GetParam().says)) << why();
    EXPECT_NE(std::string::npos, why().find("; it takes ")) << why();
    EXPECT_NE(std::string::npos, why().find("unset it for the default")) << why();
    EXPECT_EQ(std::string::npos, why().find("errno")) << why();
}

INSTANTIATE_TEST_SUITE_P(
    Values, ParamBad,
    ::testing::Values(Bad{"NCCL_PVRDMA_TRANSPORT=infiniband",
                          "infiniband is not a choice; it takes one of auto, rdma, tcp"},
                      Bad{"NCCL_PVRDMA_STRICT=2", "2 is neither 0 nor 1"},
                      Bad{"NCCL_PVRDMA_STRICT=maybe", "is neither 0 nor 1"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=17", "17 is out of range; it takes 0 to 16"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=-1", "is out of range"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=4k", "is not a whole number"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=1.5", "is not a whole number"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=--1", "is not a whole number"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=0x", "is not a whole number"},
                      Bad{"NCCL_PVRDMA_TCP_STREAMS=99999999999999999999", "is out of range"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=4095", "4095 is out of range; it takes 4K to 64M"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=65M", "is out of range"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=1T", "has no unit of size"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=k", "is not a size"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=9223372036854775807G", "is out of range"},
                      Bad{"NCCL_PVRDMA_TCP_CHUNK=-64K", "is out of range"},
                      Bad{"NCCL_PVRDMA_CONNECT_TIMEOUT=soon", "is not a time"},
                      Bad{"NCCL_PVRDMA_CONNECT_TIMEOUT=5 days",
                          "has no unit of time behind the number (ns, us, ms, s, m, h or d)"},
                      Bad{"NCCL_PVRDMA_CONNECT_TIMEOUT=0",
                          "is out of range; it takes 10ms to 3600s"},
                      Bad{"NCCL_PVRDMA_CONNECT_TIMEOUT=9223372036854775807min", "is out of range"},
                      Bad{"NCCL_PVRDMA_KEEPALIVE_INTVL=1ms", "is out of range"},
                      Bad{"NCCL_PVRDMA_TC=256", "is out of range"},
                      Bad{"NCCL_PVRDMA_SOCKET_FAMILY=AF_UNIX", "is not a choice"},
                      Bad{"NCCL_PVRDMA_ADDR_RANGE=10.1.0.0",
                          "10.1.0.0 is not a network; it takes ADDRESS/PREFIX, such as "},
                      Bad{"NCCL_PVRDMA_TCP_CC=re\nno", "contains a control character"}));

TEST_F(Param, OverlongTextIsRefusedAndItsErrorStaysShort)
{
    ASSERT_EQ(-EINVAL, read({"NCCL_PVRDMA_TCP_CC=" + std::string(5000, 'c')}));
    EXPECT_NE(std::string::npos, why().find("is too long"));
    EXPECT_LT(why().size(), 400u);
    ASSERT_EQ(0, read({"NCCL_PVRDMA_TCP_CC=" + std::string(PVN_PARAM_STR_LEN - 1, 'c')}));
    EXPECT_EQ((size_t)PVN_PARAM_STR_LEN - 1, strlen(params.tcp_cc));
    ASSERT_EQ(-EINVAL, read({"NCCL_PVRDMA_TCP_CC=" + std::string(PVN_PARAM_STR_LEN, 'c')}));
}

TEST_F(Param, RefusalLeavesDefaults)
{
    ASSERT_EQ(-EINVAL, read({"NCCL_PVRDMA_TCP_CHUNK=1"}));
    EXPECT_EQ(512u << 10, params.tcp_chunk);
    char setting[] = "NCCL_PVRDMA_TCP_CHUNK=1";
    char *envp[] = {setting, nullptr};
    EXPECT_EQ(-EINVAL, pvn_params_read(&params, envp, nullptr)) << "the reason may not be needed";
}

TEST_F(Param, OwnNameBeatsAlias)
{
    ASSERT_EQ(0, read({"NCCL_SOCKET_IFNAME=eth1", "NCCL_PVRDMA_SOCKET_IFNAME=eth2"}));
    EXPECT_STREQ("eth2", params.socket_ifname);
    EXPECT_EQ(PVN_PARAM_FROM_ENV, params.source[row_index("SOCKET_IFNAME")]);

    ASSERT_EQ(0, read({"NCCL_SOCKET_IFNAME=eth1"}));
    EXPECT_STREQ("eth1", params.socket_ifname);
    EXPECT_EQ(PVN_PARAM_FROM_ALIAS, params.source[row_index("SOCKET_IFNAME")]);
    EXPECT_TRUE(warnings.empty());
}

TEST_F(Param, EmptyCountsAsUnset)
{
    ASSERT_EQ(0, read({"NCCL_PVRDMA_SOCKET_IFNAME=", "NCCL_SOCKET_IFNAME=eth1",
                       "NCCL_PVRDMA_TCP_CHUNK="}));
    EXPECT_STREQ("eth1", params.socket_ifname);
    EXPECT_EQ(PVN_PARAM_FROM_DEFAULT, params.source[row_index("TCP_CHUNK")]);
}

TEST_F(Param, FirstOfTwoEntriesCountsAsWithGetenv)
{
    ASSERT_EQ(0, read({"NCCL_PVRDMA_TC=1", "NCCL_PVRDMA_TC=2"}));
    EXPECT_EQ(1, params.traffic_class);
}

/* NCCL's variables may be meant for NCCL's own transports. So a bad value causes a warning, but
 * no error. */
TEST_F(Param, BadAliasIsWarnedOfAndNotUsed)
{
    ASSERT_EQ(0, read({"NCCL_NSOCKS_PERTHREAD=64"}));
    EXPECT_EQ(0, params.tcp_streams);
    EXPECT_EQ(PVN_PARAM_FROM_DEFAULT, params.source[row_index("TCP_STREAMS")]);
    ASSERT_EQ(1u, warnings.size());
    EXPECT_EQ(0u, warnings[0].find(
                      "NCCL_NSOCKS_PERTHREAD=64 is out of range; this plugin takes 0 to 16"));
    EXPECT_NE(std::string::npos, warnings[0].find("NCCL_PVRDMA_TCP_STREAMS overrides it"));
}

TEST_F(Param, NcclsRangeThatIsNoNetworkIsIgnored)
{
    for (const char *bad : {"10.1.0.0/255.255.0.0", "10.1.0.0/99", "10.1.0.0"}) {
        ASSERT_EQ(0, read({std::string("NCCL_IB_ADDR_RANGE=") + bad}));
        EXPECT_STREQ("", params.addr_range);
        ASSERT_EQ(1u, warnings.size()) << bad;
        EXPECT_EQ(0u, warnings[0].find(std::string("NCCL_IB_ADDR_RANGE=") + bad +
                                       " is not a network; this plugin takes ADDRESS/PREFIX"));
        warnings.clear();
    }
}

TEST_F(Param, NcclsMarkForUnsetIsSilent)
{
    ASSERT_EQ(0, read({"NCCL_NSOCKS_PERTHREAD=-2", "NCCL_IB_ADAPTIVE_ROUTING=-2",
                       "NCCL_SOCKET_SNDBUF=-1", "NCCL_IB_TC=-1"}));
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EXPECT_EQ(0, params.tcp_streams);
    EXPECT_EQ(-1, params.adaptive_routing);
    EXPECT_EQ(0u, params.tcp_sndbuf);
    EXPECT_EQ(-1, params.traffic_class);
}

TEST_F(Param, UnknownNamesGetASuggestion)
{
    const struct {
        const char *setting, *want;
    } cases[] = {
        {"NCCL_PVRDMA_TCP_STREAM=2", "NCCL_PVRDMA_TCP_STREAMS?"},
        {"NCCL_PVRDMA_TPC_CHUNK=2", "NCCL_PVRDMA_TCP_CHUNK?"},
        {"NCCL_PVRDMA_strict=1", "NCCL_PVRDMA_STRICT?"},
        {"NCCL_PVRDMA_CONNECTION_TIMEOUT=2", "NCCL_PVRDMA_CONNECT_TIMEOUT?"},
        {"NCCL_PVRDMA_SOCKET_IF_NAME=2", "NCCL_PVRDMA_SOCKET_IFNAME?"},
    };

    for (const auto &c : cases) {
        warnings.clear();
        SetUp(); /* one line of code logs all of them: forget folded lines */
        ASSERT_EQ(0, read({c.setting}));
        ASSERT_EQ(1u, warnings.size()) << c.setting;
        EXPECT_NE(std::string::npos, warnings[0].find(std::string("did you mean ") + c.want))
            << warnings[0];
    }
}

TEST_F(Param, FarNamesGetNone)
{
    EXPECT_EQ(nullptr, pvn_param_suggest("COMPLETELY_DIFFERENT_THING"));
    EXPECT_EQ(nullptr, pvn_param_suggest(std::string(4000, 'A').c_str()));
    EXPECT_EQ(nullptr, pvn_param_suggest("QQQQ"));
    ASSERT_EQ(0, read({"NCCL_PVRDMA_=1", "NCCL_PVRDMA_COMPLETELY_DIFFERENT_THING=1"}));
    ASSERT_EQ(2u, warnings.size());
    EXPECT_NE(std::string::npos, warnings[1].find("lists them"));
}

TEST_F(Param, OtherVariablesAreNobodysBusiness)
{
    ASSERT_EQ(0, read({"NCCL_PVRDM=1", "PATH=/bin", "XNCCL_PVRDMA_TC=7", "NCCL_PVRDMA_TC",
                       "garbage", "", "="}));
    EXPECT_TRUE(warnings.empty());
    EXPECT_EQ(-1, params.traffic_class);
}

TEST_F(Param, LoadReadsOnceUntilUnloaded)
{
    ASSERT_EQ(0, setenv("NCCL_PVRDMA_TC", "8", 1));
    EXPECT_EQ(-1, pvn_params_get()->traffic_class) << "defaults before loading";
    ASSERT_EQ(0, pvn_params_load(&err)) << why();
    EXPECT_EQ(8, pvn_params_get()->traffic_class);
    ASSERT_EQ(0, setenv("NCCL_PVRDMA_TC", "16", 1));
    ASSERT_EQ(0, pvn_params_load(&err));
    EXPECT_EQ(8, pvn_params_get()->traffic_class);
    pvn_params_unload();
    ASSERT_EQ(0, pvn_params_load(&err));
    EXPECT_EQ(16, pvn_params_get()->traffic_class);
    pvn_params_unload();
    ASSERT_EQ(0, setenv("NCCL_PVRDMA_TC", "1000", 1));
    EXPECT_EQ(-EINVAL, pvn_params_load(&err));
    EXPECT_EQ(-1, pvn_params_get()->traffic_class);
    unsetenv("NCCL_PVRDMA_TC");
    ASSERT_EQ(0, pvn_params_load(&err)) << "a refusal is not remembered";
    pvn_params_unload();
}

TEST_F(Param, OverrideServesTests)
{
    ASSERT_EQ(0, read({"NCCL_PVRDMA_TC=3"}));
    pvn_params_override(&params);
    EXPECT_EQ(3, pvn_params_get()->traffic_class);
    pvn_params_override(nullptr);
    EXPECT_EQ(-1, pvn_params_get()->traffic_class);
}

TEST_F(Param, EnvironmentIsLeftAlone)
{
    std::vector<std::string> before, after;

    for (char **e = environ; *e; e++)
        before.push_back(*e);
    ASSERT_EQ(0, pvn_params_load(&err));
    pvn_params_unload();
    for (char **e = environ; *e; e++)
        after.push_back(*e);
    EXPECT_EQ(before, after);
}

TEST(DevList, SkipsEmptyItemsAndReadsMarks)
{
    pvn_dev_list list = pvn_dev_list_parse(" ^=eth0, ,eth1:2,, ib0 ,:3");
    const char *at = list.items, *item;
    size_t len;
    std::vector<std::string> items;

    EXPECT_TRUE(list.exclude && list.exact && !list.empty);
    while (pvn_dev_list_next(&at, &item, &len))
        items.emplace_back(item, len);
    EXPECT_EQ((std::vector<std::string>{"eth0", "eth1:2", "ib0"}), items);
    EXPECT_FALSE(pvn_dev_list_next(&at, &item, &len));

    EXPECT_FALSE(pvn_dev_list_matches("^=eth0", "eth0", 0));
    EXPECT_TRUE(pvn_dev_list_matches("^=eth0", "eth01", 0));
    EXPECT_TRUE(pvn_dev_list_matches("mlx5_1:2", "mlx5_1", 2));
    EXPECT_FALSE(pvn_dev_list_matches("mlx5_1:2", "mlx5_1", 1));
    EXPECT_TRUE(pvn_dev_list_matches("^", "eth0", 0)) << "a list without a name excludes nothing";
    EXPECT_TRUE(pvn_dev_list_matches(nullptr, "eth0", 0));
}

TEST(DevList, GivesRailAndPlane)
{
    const struct {
        const char *text, *name;
        int port, rail, plane;
    } cases[] = {
        {"=mlx5_0:1:3:4,mlx5_1:1:5", "mlx5_0", 1, 3, 4},
        {"=mlx5_0:1:3:4,mlx5_1:1:5", "mlx5_1", 1, 5, -1},
        {"=mlx5_0::0:1", "mlx5_0", 2, 0, 1},
        {"=mlx5_0:1:3:4", "mlx5_0", 2, -1, -1},
        {"mlx5:::7", "mlx5_9", 1, -1, 7},
        {"mlx5_0:1,mlx5_0:2:8", "mlx5_0", 2, 8, -1},
        {"^mlx5_0:1:3:4", "mlx5_0", 1, -1, -1},
        {"mlx5_0:1:32768:-5", "mlx5_0", 1, -1, -1},
        {"mlx5_0", "mlx5_0", 1, -1, -1},
        {"", "mlx5_0", 1, -1, -1},
    };
    for (const auto &c : cases) {
        int rail = 99, plane = 99;
        pvn_dev_list_place(c.text, c.name, c.port, &rail, &plane);
        EXPECT_EQ(c.rail, rail) << c.text << " for " << c.name;
        EXPECT_EQ(c.plane, plane) << c.text << " for " << c.name;
    }
}

std::string printed(const std::function<void(FILE *)> &print)
{
    char *text = nullptr;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    print(f);
    fclose(f);
    std::string out(text, size);
    free(text);
    return out;
}

TEST_F(Param, ListingShowsValueSourceAndHelp)
{
    ASSERT_EQ(0, read({"NCCL_PVRDMA_TCP_CHUNK=1M", "NCCL_SOCKET_IFNAME=eth7"}));
    const std::string out = printed([&](FILE *f) { pvn_params_print(f, &params); });

    EXPECT_NE(std::string::npos,
              out.find("NCCL_PVRDMA_TCP_CHUNK=1M    [environment]\n    Messages are cut"));
    EXPECT_NE(std::string::npos,
              out.find("NCCL_PVRDMA_SOCKET_IFNAME=eth7    [NCCL_SOCKET_IFNAME]\n"));
    EXPECT_NE(std::string::npos, out.find("NCCL_PVRDMA_CONNECT_TIMEOUT=60s    [default]\n"));
    size_t start = 0;
    for (size_t nl; (nl = out.find('\n', start)) != std::string::npos; start = nl + 1)
        EXPECT_LE(nl - start, 92u) << out.substr(start, nl - start);
    for (const auto &row : all_rows())
        EXPECT_NE(std::string::npos, out.find(std::string(PVN_PARAM_PREFIX) + row.name + "="))
            << row.name;
}

TEST_F(Param, ListingShowsNcclsOtherVariables)
{
    const std::string set[] = {
        "NCCL_IB_FIFO_TC=46",   "NCCL_IB_DATA_DIRECT=0",   "NCCL_CROSS_NIC=\033[1m",
        "NCCL_IB_USE_INLINE=1", "NCCL_SOCKET_IFNAME=eth7", "PATH=/bin",
        "NCCL_COMM_ID="};
    std::vector<char *> envp;

    for (const auto &e : set)
        envp.push_back(const_cast<char *>(e.c_str()));
    envp.push_back(nullptr);
    const std::string out = printed([&](FILE *f) { pvn_nccl_vars_print(f, envp.data()); });
    EXPECT_EQ(0u, out.find("\nNCCL's other variables that are set here:\n\n"
                           "NCCL_IB_FIFO_TC=46    [no effect]\n    Control messages have"))
        << out;
    EXPECT_NE(std::string::npos, out.find("NCCL_IB_DATA_DIRECT=0    [as here anyway]\n")) << out;
    EXPECT_NE(std::string::npos, out.find("NCCL_CROSS_NIC=?[1m    [NCCL's own]\n")) << out;
    EXPECT_NE(std::string::npos, out.find("NCCL_IB_USE_INLINE=1    [no meaning here]\n")) << out;
    EXPECT_EQ(std::string::npos, out.find("eth7")) << out;
    EXPECT_EQ(std::string::npos, out.find("COMM_ID")) << out;
    envp = {nullptr};
    EXPECT_EQ("", printed([&](FILE *f) { pvn_nccl_vars_print(f, envp.data()); }));
}

TEST_F(Param, ManPageSectionIsValidRoff)
{
    const std::string out = printed(pvn_params_print_roff);
    size_t start = 0;

    for (const auto &row : all_rows())
        EXPECT_NE(std::string::npos,
                  out.find(".TP\n.B NCCL_PVRDMA_" + std::string(row.name) + "\n"))
            << row.name;
    for (size_t nl; (nl = out.find('\n', start)) != std::string::npos; start = nl + 1) {
        const std::string line = out.substr(start, nl - start);
        EXPECT_TRUE(line[0] != '.' || line == ".TP" || line.compare(0, 3, ".B ") == 0) << line;
    }
    EXPECT_NE(std::string::npos, out.find("/proc/sys/net/ipv4/tcp_allowed"));
}

} // namespace
