// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

extern "C" {
#include "base/err.h"
#include "base/hints.h"
#include "base/result.h"
}

namespace
{

std::string text_of(const pvn_err &err)
{
    char buf[PVN_ERR_TEXT_LEN];

    // The text comes first, because the order in which a call's arguments are evaluated is
    // unspecified.
    auto len = pvn_err_format(&err, buf, sizeof(buf));
    EXPECT_EQ(strlen(buf), len);
    return buf;
}

TEST(Err, RootCauseStandsLastAndContextFirst)
{
    pvn_err err = PVN_ERR_INIT;

    EXPECT_EQ(-ECONNRESET, pvn_err_set(&err, -ECONNRESET, "reading from %s", "192.0.2.7:40000"));
    EXPECT_EQ(-ECONNRESET, pvn_err_add(&err, "comm %d", 4));
    EXPECT_EQ("comm 4: reading from 192.0.2.7:40000: Connection reset by peer (errno 104)",
              text_of(err));
}

TEST(Err, NamesBothEndsAndTheHint)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ECONNREFUSED, "dialling");
    pvn_err_set_who(&err, "node%d 192.0.2.7:40000", 7);
    pvn_err_set_where(&err, "eth%d", 2);
    pvn_err_set_hint(&err, PVN_HINT_REFUSED);
    const std::string text = text_of(err);
    EXPECT_NE(std::string::npos,
              text.find("local eth2; peer node7 192.0.2.7:40000; likely: nothing listens"));
    EXPECT_NE(std::string::npos, text.find("; try: "));
}

TEST(Err, HowLongItHadWorked)
{
    const uint64_t second = 1000000000;
    char text[128];

    EXPECT_STREQ("the comm had worked for 12.3 s (5 messages, 4096 bytes)",
                 pvn_worked_text(12 * second + second / 3, 5, 4096, text, sizeof(text)));
    EXPECT_STREQ("the comm had worked for 41 min (1 message, 0 bytes)",
                 pvn_worked_text(41 * 60 * second, 1, 0, text, sizeof(text)));
    EXPECT_STREQ("the comm had been up for 0.3 s and never carried a message",
                 pvn_worked_text(second / 3, 0, 0, text, sizeof(text)));
}

TEST(Err, InputErrorsShowNoErrno)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EINVAL, "X=1 is wrong");
    pvn_err_set_fault(&err, PVN_FAULT_USAGE);
    EXPECT_EQ("X=1 is wrong", text_of(err));
}

// A message has the code's meaning once, even if the root cause already contains it.
TEST(Err, SaysOnceWhatTheCodeMeans)
{
    char why[64];
    pvn_err err = PVN_ERR_INIT;
    pvn_err_set(&err, -EPIPE, "send: %s", pvn_strerror(EPIPE, why, sizeof(why)));
    EXPECT_EQ("send: Broken pipe (errno 32)", text_of(err));
    pvn_err_add(&err, "lane 1");
    EXPECT_EQ("lane 1: send: Broken pipe (errno 32)", text_of(err));
    pvn_err_set(&err, -EPIPE, "Broken pipe, it seems");
    EXPECT_EQ("Broken pipe, it seems: Broken pipe (errno 32)", text_of(err));
}

TEST(Err, SetForgetsWhatWasThere)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EIO, "first");
    pvn_err_add(&err, "context");
    pvn_err_set_who(&err, "somebody");
    pvn_err_set(&err, -ENOMEM, "second");
    EXPECT_EQ("second: Cannot allocate memory (errno 12)", text_of(err));
}

TEST(Err, FullChainCountsInsteadOfGrowing)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EIO, "root");
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(-EIO, pvn_err_add(&err, "level %d", i));
    EXPECT_EQ("level 1: level 0: root: Input/output error (errno 5) [3 more]", text_of(err));
}

TEST(Err, NullIsAllowedAndKeepsTheCode)
{
    pvn_err_clear(nullptr);
    pvn_err_set_who(nullptr, "x");
    pvn_err_set_where(nullptr, "x");
    pvn_err_set_hint(nullptr, 1);
    pvn_err_set_fault(nullptr, PVN_FAULT_REMOTE);
    EXPECT_EQ(-EPIPE, pvn_err_set(nullptr, -EPIPE, "x"));
    EXPECT_GT(0, pvn_err_add(nullptr, "x"));
}

TEST(Err, AnErrorNeverLooksLikeSuccess)
{
    pvn_err err = PVN_ERR_INIT;

    EXPECT_EQ("no error", text_of(err));
    EXPECT_EQ(-EIO, pvn_err_set(&err, 0, "called with 0"));
    pvn_err_clear(&err);
    EXPECT_EQ(-EIO, pvn_err_add(&err, "context of nothing"));
    EXPECT_EQ(-EIO, err.code);
}

TEST(Err, TextsFromTheWireCannotForgeLines)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EPROTO, "peer says: %s", "a\nNCCL WARN b\x1b[31m\x7f \xc3\xa4");
    EXPECT_NE(std::string::npos, text_of(err).find("peer says: a?NCCL WARN b?[31m? \xc3\xa4"));
}

// A peer's reason and its hint may be longer together than a reason can be here, because a frame
// has more room.
TEST(Err, WhatHasNoRoomEndsBehindAPartOfIt)
{
    const std::string part(100, 'x'), want = "; likely: " + part + "; local " + part;
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EREMOTEIO, "the peer gave up: a socket failed%s; try: raise the limit (%s)",
                want.c_str(), part.c_str());
    EXPECT_EQ("the peer gave up: a socket failed" + want + " ...", std::string(err.reason[0]));
    std::string words;
    for (int i = 0; i < 100; i++)
        words += "word ";
    pvn_err_set(&err, -EREMOTEIO, "%s", words.c_str());
    EXPECT_EQ("word ...", std::string(err.reason[0]).substr(strlen(err.reason[0]) - 8));
    EXPECT_GT(strlen(err.reason[0]), PVN_ERR_REASON_LEN - 12u);
    pvn_err_set(&err, -EREMOTEIO, "%s", std::string(PVN_ERR_REASON_LEN - 1, 'y').c_str());
    EXPECT_EQ(std::string(PVN_ERR_REASON_LEN - 1, 'y'), err.reason[0]) << "it has room";
}

TEST(Err, EverythingFitsAndShortBuffersAreTerminated)
{
    const std::string big(5000, 'x');
    size_t count, longest = 0;
    const pvn_hint *table = pvn_hint_table(&count);
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EIO, "%s", big.c_str());
    for (int i = 0; i < 4; i++)
        pvn_err_add(&err, "%s", big.c_str());
    pvn_err_set_who(&err, "%s", big.c_str());
    pvn_err_set_where(&err, "%s", big.c_str());
    for (size_t i = 0; i < count; i++) {
        pvn_err_set_hint(&err, table[i].id);
        const std::string text = text_of(err);
        longest = std::max(longest, text.size());
        EXPECT_EQ(table[i].todo, text.substr(text.size() - strlen(table[i].todo))) << "cut";
    }
    EXPECT_GT(longest, 3u * (PVN_ERR_REASON_LEN - 1));

    for (size_t size = 1; size < 200; size++) {
        char buf[200];
        memset(buf, 'Z', sizeof(buf));
        EXPECT_EQ(size - 1, pvn_err_format(&err, buf, size));
        EXPECT_EQ(size - 1, strlen(buf));
    }
    EXPECT_EQ(0u, pvn_err_format(&err, nullptr, 0));
}

TEST(Err, AppendCutsAndCounts)
{
    char buf[8] = "";

    EXPECT_EQ(3u, pvn_str_append(buf, sizeof(buf), "a%d", 42));
    EXPECT_EQ(7u, pvn_str_append(buf, sizeof(buf), "bcdefgh"));
    EXPECT_STREQ("a42bcde", buf);
    EXPECT_EQ(7u, pvn_str_append(buf, sizeof(buf), "more"));
    EXPECT_STREQ("a42bcde", buf);
}

struct ResultCase {
    int code;
    pvn_fault fault;
    pvn_result want;
};

class Result : public ::testing::TestWithParam<ResultCase>
{
};

TEST_P(Result, AnErrorMapsToNcclsResult)
{
    pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -EIO, "x");
    err.fault = GetParam().fault;
    EXPECT_EQ(GetParam().want, pvn_result_of(GetParam().code, &err));
    if (GetParam().fault == PVN_FAULT_UNSET) {
        EXPECT_EQ(GetParam().want, pvn_result_of(GetParam().code, nullptr));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Result,
    ::testing::Values(ResultCase{0, PVN_FAULT_UNSET, PVN_RESULT_SUCCESS},
                      ResultCase{0, PVN_FAULT_REMOTE, PVN_RESULT_SUCCESS},
                      ResultCase{-EINPROGRESS, PVN_FAULT_UNSET, PVN_RESULT_IN_PROGRESS},
                      ResultCase{-EINVAL, PVN_FAULT_UNSET, PVN_RESULT_INVALID_ARGUMENT},
                      ResultCase{-EINVAL, PVN_FAULT_USAGE, PVN_RESULT_INVALID_USAGE},
                      ResultCase{-EMSGSIZE, PVN_FAULT_UNSET, PVN_RESULT_INVALID_ARGUMENT},
                      ResultCase{-EOPNOTSUPP, PVN_FAULT_UNSET, PVN_RESULT_INVALID_USAGE},
                      ResultCase{-ECONNRESET, PVN_FAULT_UNSET, PVN_RESULT_REMOTE_ERROR},
                      ResultCase{-ECONNRESET, PVN_FAULT_INTERNAL, PVN_RESULT_INTERNAL_ERROR},
                      ResultCase{-EPIPE, PVN_FAULT_UNSET, PVN_RESULT_REMOTE_ERROR},
                      ResultCase{-ETIMEDOUT, PVN_FAULT_UNSET, PVN_RESULT_REMOTE_ERROR},
                      ResultCase{-EHOSTUNREACH, PVN_FAULT_UNSET, PVN_RESULT_REMOTE_ERROR},
                      ResultCase{-EPROTO, PVN_FAULT_UNSET, PVN_RESULT_REMOTE_ERROR},
                      ResultCase{-ENOMEM, PVN_FAULT_UNSET, PVN_RESULT_SYSTEM_ERROR},
                      ResultCase{-EMFILE, PVN_FAULT_UNSET, PVN_RESULT_SYSTEM_ERROR},
                      ResultCase{-ENODEV, PVN_FAULT_SYSTEM, PVN_RESULT_SYSTEM_ERROR},
                      ResultCase{-ENOMEM, PVN_FAULT_CUDA, PVN_RESULT_CUDA_ERROR},
                      ResultCase{-EIO, PVN_FAULT_ARGUMENT, PVN_RESULT_INVALID_ARGUMENT},
                      ResultCase{-EAGAIN, PVN_FAULT_UNSET, PVN_RESULT_INTERNAL_ERROR},
                      ResultCase{-EBADFD, PVN_FAULT_UNSET, PVN_RESULT_INTERNAL_ERROR},
                      ResultCase{EINVAL, PVN_FAULT_UNSET, PVN_RESULT_INTERNAL_ERROR}));

} // namespace
