// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A directory of statistics files for a test, and what a reader gets from them
#ifndef PVN_TESTS_UNIT_STATS_FILES_H
#define PVN_TESTS_UNIT_STATS_FILES_H

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "stats/stats.h"
#include "stats/stats_read.h"
}

inline std::string said; // the log

inline void capture(void *, enum pvn_log_level, unsigned long, const char *, int, const char *text)
{
    said += std::string(text) + "\n";
}

inline std::string slurp(const std::string &path)
{
    std::ifstream f(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
}

inline void spill(const std::string &path, const std::string &content)
{
    std::ofstream(path, std::ios::binary) << content;
}

class Stats : public testing::Test
{
  protected:
    std::string top, dir;
    pvn_params params;

    void SetUp() override
    {
        char t[] = "/tmp/pvn-stats-test.XXXXXX";
        top = mkdtemp(t);
        use(top + "/d");
        said.clear();
        pvn_log_set_capture(capture, nullptr);
        ASSERT_EQ(0, pvn_fork_mark());
    }
    void TearDown() override
    {
        pvn_stats_close();
        pvn_params_override(nullptr);
        pvn_log_set_capture(nullptr, nullptr);
        std::string rm = "rm -rf " + top;
        EXPECT_EQ(0, system(rm.c_str()));
    }
    void use(const std::string &d)
    {
        dir = d;
        params = *pvn_params_get();
        snprintf(params.stats_dir, sizeof(params.stats_dir), "%s", d.c_str());
        pvn_params_override(&params);
    }
    std::set<std::string> files() const
    {
        std::set<std::string> names;
        std::string list = "ls " + dir + " 2>/dev/null";
        FILE *p = popen(list.c_str(), "r");
        char line[256];
        while (fgets(line, sizeof(line), p))
            names.insert(std::string(line, strlen(line) - 1));
        pclose(p);
        return names;
    }
    // Runs `body` in a child that then ends without closing its file. Returns its pid.
    static pid_t child(const std::function<void()> &body)
    {
        pid_t pid = fork();
        if (pid == 0) {
            body();
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
        return pid;
    }
    // Does what the plugin does in a child that initialises for itself.
    static void begin_afresh()
    {
        pvn_stats_after_fork();
        pvn_fork_mark();
        pvn_stats_open(12);
    }
    // Writes the file of a dead process under another name, its header changed by `change`.
    std::string dead_file(int n, const std::function<void(pvn_stat_head *)> &change)
    {
        static std::string image;
        if (image.empty()) {
            child([] {
                begin_afresh();
                pvn_stat_new(PVN_STAT_UP, true, "eth0");
            });
            for (auto &f : files()) {
                image = slurp(dir + "/" + f);
                unlink((dir + "/" + f).c_str());
            }
        }
        mkdir(dir.c_str(), 0700);
        std::string copy = image, name = "1-" + std::to_string(n) + "-0.stat";
        auto *h = reinterpret_cast<pvn_stat_head *>(copy.data());
        change(h);
        spill(dir + "/" + name, copy);
        return name;
    }
};

struct Read {
    pvn_stats s;
    int rc;
    pvn_err err = PVN_ERR_INIT;
    explicit Read(const std::string &path)
    {
        rc = pvn_stats_read(path.c_str(), &s, &err);
    }
    Read(const Read &) = delete;
    Read &operator=(const Read &) = delete;
    ~Read()
    {
        pvn_stats_free(&s);
    }
};

#endif
