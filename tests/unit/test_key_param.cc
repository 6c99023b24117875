// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A process's key, as the parameters request it.
#include "config.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <string>

extern "C" {
#include "base/param.h"
#include "seal/key.h"
#include "seal/seal_begin.h"
}
#include "support/key_file.h"

namespace
{

struct Begin : testing::Test {
    Folder f;
    pvn_params p = *pvn_params_get();
    pvn_err err = PVN_ERR_INIT;

    void key(const std::string &path)
    {
        snprintf(p.key_file, sizeof(p.key_file), "%s", path.c_str());
    }
    void TearDown() override
    {
        pvn_seal_end();
        EXPECT_EQ(nullptr, pvn_seal_key());
    }
};

TEST_F(Begin, WithoutAKeyThereIsNothing)
{
    EXPECT_EQ(0, pvn_seal_begin(&p, &err));
    EXPECT_EQ(nullptr, pvn_seal_key());
    p.encrypt = PVN_ENCRYPT_CONTROL;
    EXPECT_EQ(-EINVAL, pvn_seal_begin(&p, &err));
    EXPECT_SAYS(err.reason[0], "needs a key");
}

#ifdef HAVE_OPENSSL
TEST_F(Begin, AKeyIsReadAndForgotten)
{
    key(write_file(f / "k", std::string(40, 'k')));
    ASSERT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    EXPECT_NE(nullptr, pvn_seal_key());
    p.encrypt = PVN_ENCRYPT_ALL;
    EXPECT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    p.transport = PVN_TRANSPORT_RDMA;
    EXPECT_EQ(-EINVAL, pvn_seal_begin(&p, &err)) << "adapters cannot encrypt";
    EXPECT_SAYS(err.reason[0], "set ENCRYPT to control");
    EXPECT_EQ(nullptr, pvn_seal_key());
    p.encrypt = PVN_ENCRYPT_CONTROL;
    key(write_file(f / "k", "short"));
    EXPECT_EQ(-EINVAL, pvn_seal_begin(&p, &err));
    EXPECT_EQ(nullptr, pvn_seal_key());
}
#else
TEST_F(Begin, ABuildWithoutOpensslRefusesAKeyWithTheRemedy)
{
    key(write_file(f / "k", std::string(40, 'k')));
    EXPECT_EQ(-EOPNOTSUPP, pvn_seal_begin(&p, &err));
    EXPECT_SAYS(err.reason[0], "--without-openssl");
    EXPECT_SAYS(err.reason[0], "install a build that has it");
    EXPECT_EQ(nullptr, pvn_seal_key());
}
#endif

} // namespace
