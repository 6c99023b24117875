// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// How a process gets its key from the parameters.
#include "config.h"

#include <gtest/gtest.h>

#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

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
// True if the root directory and this folder are on common local file systems.
bool is_common(const char *folder)
{
    for (const char *path : {"/", folder}) {
        struct statfs fs;
        EXPECT_EQ(0, statfs(path, &fs));
        if (fs.f_type != EXT4_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC &&
            fs.f_type != OVERLAYFS_SUPER_MAGIC)
            return false;
    }
    return true;
}

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

TEST_F(Begin, AFileThatWasReplacedIsNoticedAndOneThatCannotBeReadIsNone)
{
    const std::string a(40, 'a'), b(40, 'b');
    EXPECT_EQ(0, pvn_seal_check_replaced(&err)) << "there is no key";
    key(write_file(f / "k", a));
    ASSERT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    EXPECT_EQ(0, pvn_seal_check_replaced(&err)) << err.reason[0];
    EXPECT_TRUE(pvn_seal_is_file_watched() || !is_common(f.path));
    if (!pvn_seal_is_file_watched())
        GTEST_SKIP() << f.path << " is on a file system that may block";
    write_file(f / "k", b);
    EXPECT_EQ(-EKEYREVOKED, pvn_seal_check_replaced(&err));
    EXPECT_EQ(-EKEYREVOKED, err.code);
    EXPECT_EQ(PVN_FAULT_USAGE, err.fault);
    char text[PVN_KEY_TEXT];
    EXPECT_SAYS(err.reason[0],
                std::string("NCCL_PVRDMA_KEY_FILE was replaced while the job ran (it had ") +
                    pvn_key_describe(pvn_seal_key(), text) + ", and has 40 bytes, ");
    EXPECT_SAYS(err.reason[0], "the file: " + (f / "k"));
    // A key with a byte more, one with a byte less, and then changes that do not replace the key.
    write_file(f / "k", a + "\n");
    EXPECT_EQ(-EKEYREVOKED, pvn_seal_check_replaced(&err));
    write_file(f / "k", a.substr(1));
    EXPECT_EQ(-EKEYREVOKED, pvn_seal_check_replaced(&err));
    err = PVN_ERR_INIT;
    write_file(f / "k", "half");
    EXPECT_EQ(0, pvn_seal_check_replaced(&err));
    write_file(f / "k", b, 0644);
    EXPECT_EQ(0, pvn_seal_check_replaced(&err));
    EXPECT_EQ(0, remove((f / "k").c_str()));
    EXPECT_EQ(0, pvn_seal_check_replaced(&err));
    write_file(f / "k", a);
    EXPECT_EQ(0, pvn_seal_check_replaced(&err));
    EXPECT_EQ(0, err.code) << err.reason[0];
    // After another call of pvn_seal_begin, the file's present key counts.
    write_file(f / "k", b);
    ASSERT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    EXPECT_EQ(0, pvn_seal_check_replaced(&err));
}

// If a file name is too long for the message, its end is cut, but no other part of the message.
TEST_F(Begin, ALongNameCutsNothingElseOfTheMessage)
{
    std::string long_name = f / std::string(250, 'd').c_str();
    ASSERT_EQ(0, mkdir(long_name.c_str(), 0700));
    long_name += "/k";
    key(write_file(long_name, std::string(40, 'a')));
    ASSERT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    write_file(long_name, std::string(41, 'b'));
    if (!pvn_seal_is_file_watched())
        GTEST_SKIP() << f.path << " is on a file system that may block";
    EXPECT_EQ(-EKEYREVOKED, pvn_seal_check_replaced(&err));
    EXPECT_SAYS(err.reason[0], "and has 41 bytes, ");
    EXPECT_SAYS(err.reason[0], "no connection is made with the old key any more; the file: /");
}

// The name still means the same file after the process has changed its directory to one that has a
// file of that name.
TEST_F(Begin, ARelativeNameIsOfTheDirectoryThatBeginWasCalledIn)
{
    char here[PATH_MAX];
    ASSERT_NE(nullptr, getcwd(here, sizeof(here)));
    ASSERT_EQ(0, mkdir((f / "other").c_str(), 0700));
    write_file(f / "other/k", std::string(40, 'b'));
    write_file(f / "k", std::string(40, 'a'));
    ASSERT_EQ(0, chdir(f.path));
    key("k");
    EXPECT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    EXPECT_EQ(0, chdir("other"));
    EXPECT_EQ(0, pvn_seal_check_replaced(&err)) << err.reason[0];
    write_file(f / "k", std::string(40, 'c'));
    if (pvn_seal_is_file_watched()) {
        EXPECT_EQ(-EKEYREVOKED, pvn_seal_check_replaced(&err));
    }
    EXPECT_EQ(0, chdir(here));
}

// /proc is not on the list of file systems that never wait for a network. This file belongs to its
// owner alone, and its contents change with each read.
TEST_F(Begin, AFileOnAFileSystemThatMayBlockIsReadOnce)
{
    const char *path = "/proc/self/io";
    pvn_key *twice[2] = {};
    if (access(path, R_OK) != 0)
        GTEST_SKIP() << "this kernel has no " << path;
    key(path);
    ASSERT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    for (pvn_key *&k : twice)
        ASSERT_EQ(0, pvn_key_read(path, &k, &err)) << err.reason[0];
    EXPECT_FALSE(pvn_key_is_same(twice[0], twice[1]));
    EXPECT_EQ(0, pvn_seal_check_replaced(&err)) << err.reason[0];
    EXPECT_FALSE(pvn_seal_is_file_watched());
    for (pvn_key *k : twice)
        pvn_key_free(k);
    // Nor is a link in /proc watched, although the file it leads to is on a file system of the
    // list.
    std::string link = "/proc/self/cwd/key";
    char here[PATH_MAX];
    ASSERT_NE(nullptr, getcwd(here, sizeof(here)));
    write_file(f / "key", std::string(40, 'a'));
    ASSERT_EQ(0, chdir(f.path));
    key(link);
    EXPECT_EQ(0, pvn_seal_begin(&p, &err)) << err.reason[0];
    EXPECT_EQ(0, chdir(here));
    EXPECT_FALSE(pvn_seal_is_file_watched());
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
