// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The key file: which files are refused, with which message, and which secrets are derived from a
// key.
#include "config.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <string>

extern "C" {
#include "seal/key.h"
#ifdef HAVE_OPENSSL
#include "seal/ssl_dl.h"
#endif
}
#include "support/key_file.h"

namespace
{

// The reason why the file is refused; "" if it is accepted.
std::string refusal(const std::string &path)
{
    pvn_err err = PVN_ERR_INIT;
    pvn_key *key = nullptr;
    int rc = pvn_key_read(path.c_str(), &key, &err);
    EXPECT_EQ(rc == 0, key != nullptr);
    pvn_key_free(key);
    if (rc == 0)
        return "";
    EXPECT_EQ(err.code, rc);
    EXPECT_EQ(PVN_FAULT_USAGE, err.fault);
    EXPECT_EQ(0u, std::string(err.reason[0]).find("NCCL_PVRDMA_KEY_FILE: ")) << err.reason[0];
    return err.reason[0];
}

TEST(KeyFile, ItsSizeIsBounded)
{
    Folder f;
    EXPECT_SAYS(refusal(write_file(f / "none", "")), "has 0 bytes, a key has 32 to 4096");
    EXPECT_SAYS(refusal(write_file(f / "short", std::string(31, 'k'))), "--make-key");
    EXPECT_EQ("", refusal(write_file(f / "least", std::string(32, 'k'))));
    EXPECT_EQ("", refusal(write_file(f / "most", std::string(4096, '\0'))));
    EXPECT_SAYS(refusal(write_file(f / "long", std::string(4097, 'k'))), "more than 4096 bytes");
    EXPECT_SAYS(refusal(write_file(f / "huge", std::string(100000, 'k'))), "more than 4096 bytes");
}

TEST(KeyFile, OthersMayNotUseIt)
{
    Folder f;
    for (mode_t mode : {0644, 0640, 0604, 0620, 0602, 0610, 0601, 0660, 0777}) {
        std::string why = refusal(write_file(f / "k", std::string(32, 'k'), mode));
        EXPECT_SAYS(why, "others than its owner");
        EXPECT_SAYS(why, "if that is the job's key `chmod 600` it");
    }
    // Whoever follows the remedy must not change a file that is no key.
    EXPECT_SAYS(refusal(write_file(f / "k", "short", 0644)), "has 5 bytes, a key has 32 to 4096");
    EXPECT_EQ(std::string::npos, refusal("/etc/passwd").find("chmod 600 "));
    for (mode_t mode : {0600, 0400, 0700})
        EXPECT_EQ("", refusal(write_file(f / "k", std::string(32, 'k'), mode)));
}

TEST(KeyFile, ItIsAFileOfThisUserOrOfRoot)
{
    Folder f;
    EXPECT_SAYS(refusal(f / "missing"),
                "missing cannot be opened: No such file or directory; every "
                "rank needs it: copy the job's key file to this host (`pvn-perf --make-key FILE` "
                "makes it, once for the job)");
    // The remedy must not be another key, because the key may be fine. Root can read every file.
    ASSERT_EQ(0, symlink("loop", (f / "loop").c_str()));
    EXPECT_EQ("NCCL_PVRDMA_KEY_FILE: " + (f / "loop") +
                  " cannot be opened: Too many levels of symbolic links; every rank needs it",
              refusal(f / "loop"));
    EXPECT_SAYS(refusal(f.path), "no regular file");
    ASSERT_EQ(0, mkfifo((f / "pipe").c_str(), 0600));
    EXPECT_SAYS(refusal(f / "pipe"), "no regular file") << "without a wait for its other end";
    EXPECT_SAYS(refusal("/dev/zero"), "no regular file");
    // Kubernetes presents a Secret through symbolic links.
    write_file(f / "k", std::string(32, 'k'));
    ASSERT_EQ(0, symlink("k", (f / "link").c_str()));
    EXPECT_EQ("", refusal(f / "link"));
    if (geteuid() != 0)
        return;
    ASSERT_EQ(0, chown((f / "k").c_str(), 65534, 65534));
    EXPECT_SAYS(refusal(f / "k"), "belongs to user 65534");
}

TEST(KeyFile, ANewOneIsTakenAndOverwritesNothing)
{
    Folder f;
    pvn_err err = PVN_ERR_INIT;
    struct stat st;
    std::string one, other;
    mode_t before = umask(0);
    ASSERT_EQ(0, pvn_key_make((f / "a").c_str(), &err)) << err.reason[0];
    ASSERT_EQ(0, pvn_key_make((f / "b").c_str(), &err)) << err.reason[0];
    umask(before);
    ASSERT_EQ(0, stat((f / "a").c_str(), &st));
    EXPECT_EQ(0600u, st.st_mode & 07777);
    EXPECT_EQ("", refusal(f / "a"));
    std::getline(std::ifstream(f / "a"), one);
    std::getline(std::ifstream(f / "b"), other);
    EXPECT_EQ(64u, one.size());
    EXPECT_EQ(std::string::npos, one.find_first_not_of("0123456789abcdef"));
    EXPECT_NE(one, other);
    EXPECT_EQ(-EEXIST, pvn_key_make((f / "a").c_str(), &err));
    EXPECT_SAYS(err.reason[0], "is not overwritten");
    std::string again;
    std::getline(std::ifstream(f / "a"), again);
    EXPECT_EQ(one, again);
    EXPECT_EQ(-ENOENT, pvn_key_make((f / "no/such").c_str(), &err));
}

#ifdef HAVE_OPENSSL
std::string derived(const pvn_key *key, const char *label, uint64_t session, uint64_t nonce)
{
    uint8_t out[32] = {};
    pvn_err err = PVN_ERR_INIT;
    EXPECT_EQ(0, pvn_key_derive(key, label, session, nonce, out, sizeof(out), &err))
        << err.reason[0];
    std::string hex;
    char two[3];
    for (uint8_t b : out) {
        snprintf(two, sizeof(two), "%02x", b);
        hex += two;
    }
    return hex;
}

TEST(Secrets, TheyDifferByKeyLabelSessionAndNonce)
{
    Folder f;
    pvn_err err = PVN_ERR_INIT;
    std::set<std::string> all;
    pvn_key *k = nullptr, *other = nullptr;
    ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
    ASSERT_EQ(
        0, pvn_key_read(write_file(f / "k", "0123456789abcdef0123456789abcdef").c_str(), &k, &err));
    // Computed with Python: HMAC(HMAC(salt, key), info || 01) with SHA-256.
    EXPECT_EQ("4a2568d5f5fdb4ac56f5a4251d3e1fe9e55475dec18129879eb74531404e967e",
              derived(k, "control", 1, 2));
    EXPECT_EQ(derived(k, "control", 1, 2), derived(k, "control", 1, 2));
    for (const char *label : {"control", "proof"})
        for (uint64_t session : {1ull, 2ull, 1ull << 63})
            for (uint64_t nonce : {1ull, 2ull})
                all.insert(derived(k, label, session, nonce));
    ASSERT_EQ(0, pvn_key_read(write_file(f / "o", "0123456789abcdef0123456789abcdeg").c_str(),
                              &other, &err));
    all.insert(derived(other, "control", 1, 2));
    pvn_key_free(other);
    pvn_key_free(k);
    EXPECT_EQ(13u, all.size());
}
#endif

} // namespace
