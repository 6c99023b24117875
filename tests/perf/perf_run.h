// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Functions that run pvn-perf, as one process or as the ranks of a launcher, and return its exit status and
// output.
#ifndef PVN_TESTS_PERF_RUN_H
#define PVN_TESTS_PERF_RUN_H

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/paths.h"

inline const std::string kPerf = PVN_BUILDDIR "/pvn-perf";
inline const std::string kTestnet = PVN_BUILDDIR "/tests/support/.libs/testnet.so";

class Dir
{
  public:
    Dir()
    {
        char t[] = "/tmp/pvn-perf-test.XXXXXX";
        path = mkdtemp(t);
    }
    ~Dir()
    {
        if (system(("rm -rf " + path).c_str()) != 0)
            perror("rm");
    }
    std::string operator/(const std::string &f) const
    {
        return path + "/" + f;
    }

  private:
    std::string path;
};

inline std::string Slurp(const std::string &path)
{
    std::ifstream f(path);
    std::stringstream s;

    s << f.rdbuf();
    return s.str();
}

inline int Count(const std::string &text, const std::string &what)
{
    int n = 0;

    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        n++;
    return n;
}

struct Outcome {
    int status;
    std::string out, err;
};

// Runs pvn-perf with the shell words args; env ("NAME=VALUE ...") stands in front of the command. Status 124: it was
// ended after 100 s.
inline Outcome Perf(const std::string &args, const std::string &env = "",
                    const std::string &out = "")
{
    Dir d;
    std::string cmd = "env -u RANK -u WORLD_SIZE " + env + " timeout -k 5 100 " + kPerf + " " +
                      args + " >" + (out.empty() ? d / "out" : out) + " 2>" + (d / "err") +
                      " </dev/null";
    int st = system(cmd.c_str());

    return {WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st), Slurp(d / "out"),
            Slurp(d / "err")};
}

inline std::string Ring(const std::string &more)
{
    return "ring --plugin t=" + kTestnet + " --iters 2 --warmup 1 --check " + more;
}

// Runs pvn-perf with a fault of testnet in rank 1. Some faults stop all traffic: then --timeout is short first, and the
// run is repeated with a long one if stderr does not contain `says`, because a busy machine may delay a rank for as
// long as the short one.
inline Outcome PerfWithFault(const std::string &args, const std::string &fault,
                             const std::string &says)
{
    bool waits = false;
    Outcome r;

    for (const char *kind : {"drop:", "swap:", "stuck:"})
        waits |= fault.rfind(kind, 0) == 0;
    for (const char *limit : {"1.5", "30"}) {
        r = Perf(args + (waits ? std::string(" --timeout ") + limit : ""),
                 "TESTNET_FAULT_RANK=1 TESTNET_FAULT=" + fault);
        if (!waits || r.err.find(says) != std::string::npos)
            break;
    }
    return r;
}

// ---- Launchers ----

// Starts n processes, one per rank. env(rank, n) returns the environment of each.
inline std::vector<Outcome> Launch(int n, const std::string &args,
                                   std::string (*env)(int rank, int n))
{
    std::vector<Outcome> out(static_cast<size_t>(n));
    std::vector<std::thread> t;

    for (int i = 0; i < n; i++)
        t.emplace_back([&, i] { out[static_cast<size_t>(i)] = Perf(args, env(i, n)); });
    for (auto &x : t)
        x.join();
    return out;
}

inline int g_port;

inline void NewPort()
{
    // Ports below the kernel's ephemeral range. Runs of the tests at the same time have other ones.
    g_port = 15000 + static_cast<int>((static_cast<unsigned>(getpid()) * 7u +
                                       static_cast<unsigned>(g_port) * 13u + 1) %
                                      8000u);
}

inline std::string Torchrun(int rank, int n)
{
    return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(n) +
           " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(g_port);
}

#endif
