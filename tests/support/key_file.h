/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Key files for tests.
#ifndef TESTS_SUPPORT_KEY_FILE_H
#define TESTS_SUPPORT_KEY_FILE_H

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

// A temporary folder, which its destructor removes.
struct Folder {
    char path[32] = "/tmp/pvn-key-XXXXXX";
    Folder()
    {
        EXPECT_NE(nullptr, mkdtemp(path));
    }
    ~Folder()
    {
        EXPECT_EQ(0, system((std::string("rm -rf ") + path).c_str()));
    }
    std::string operator/(const char *name) const
    {
        return std::string(path) + "/" + name;
    }
};

inline std::string write_file(const std::string &path, const std::string &bytes, mode_t mode = 0600)
{
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EQ(0, chmod(path.c_str(), mode));
    return path;
}

#define EXPECT_SAYS(text, part)                                                                    \
    EXPECT_NE(std::string::npos, std::string(text).find(part)) << "it says: " << (text)

#endif
